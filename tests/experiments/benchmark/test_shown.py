from pathlib import Path

import numpy as np

from fedfisher_core.data.shifts import rotate
from fedfisher_core.experiments.benchmark.page import report_files, shift_galleries, shown_of
from fedfisher_core.experiments.benchmark.plan import make_rows
from fedfisher_core.federation.data import load_data
from tests.experiments.benchmark.samples import make_page
from tests.walked import walk_tiny


def test_a_row_is_one_image_as_clients_see_it(workplace: Path) -> None:
    shift = ["none", {"kind": "rotation", "strength": 60}, {"kind": "noise", "strength": 0.5}]
    partition = {"scheme": "iid", "clients": 5, "shift": [*shift, {"kind": "labels", "strength": 0.4}]}
    done = walk_tiny(workplace, {"fedavg": {}}, partition=partition, seeds=[0, 1], train={"epochs": 1})
    (gallery,) = shift_galleries(done.plan, done.outcome)
    assert gallery.title == "tiny: one test image as clients see it"
    assert set(gallery.rows) == {"rotation 60, 5 clients", "noise 0.5, 5 clients"}
    place = done.plan.federations.all[0]
    data = load_data(done.made(done.plan.federations.data(place)))
    image = data.test.inputs[:1].float() / 255
    assert gallery.images.shape == (2, 5, *image.shape[1:])
    turned, noisy = (gallery.images[gallery.rows.index(f"{name}, 5 clients")] for name in ("rotation 60", "noise 0.5"))
    np.testing.assert_allclose(turned[3], rotate(image, 30.0)[0].numpy(), atol=1e-6)
    np.testing.assert_array_equal(turned[2], image[0].numpy())
    np.testing.assert_array_equal(noisy[0], image[0].numpy())
    assert noisy.min() >= 0 <= noisy.max() <= 1
    assert np.abs(noisy[4] - noisy[0]).mean() > np.abs(noisy[1] - noisy[0]).mean() > 0

    html = report_files(make_rows(done.plan, done.outcome), make_page(shown=shown_of(done.plan, done.outcome)))
    text = html["index.html"].decode()
    assert text.count("data:image/png;base64") == 2
    assert "tiny: one test image as clients see it: rotation 60, 5 clients" in text


def test_without_a_shift_of_images_there_is_no_picture(workplace: Path) -> None:
    partition = {"scheme": "iid", "clients": 5, "shift": ["none", {"kind": "labels", "strength": 0.4}]}
    done = walk_tiny(workplace, {"fedavg": {}}, partition=partition, train={"epochs": 1})
    assert shift_galleries(done.plan, done.outcome) == []
