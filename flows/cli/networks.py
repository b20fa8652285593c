"""Commands for networks of the user and of finished benchmarks; they start no server and record nothing."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfisher_core.engine.errors import InputError, shown
from flows.cli.options import PARAMS, Commands, add_command, add_overrides
from flows.reports import REPORTS, find_report

if TYPE_CHECKING:
    from torch import nn

    from fedfisher.files import ClientHeader


_NETWORK = "a registered network, or package.module:function of a function that builds one"
_CLASSES = "number of classes, for a registered network"


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    statistics = add_command(
        commands,
        "statistics",
        "compute what a method needs of a trained network of your own",
        "statistics weights.pt --network mlp --classes 10 --data mine --of weights,kfac -o client_0.safetensors",
    )
    statistics.add_argument("weights", type=Path, help="file of the trained weights (safetensors, or torch.save's)")
    statistics.add_argument("--network", required=True, help=_NETWORK)
    statistics.add_argument("--classes", type=_positive, help=_CLASSES)
    statistics.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="has inputs.npy and labels.npy")
    statistics.add_argument("--of", required=True, metavar="NAMES", help="of statistics, such as kfac,gram")
    add_overrides(statistics, "a setting such as fisher.estimator=empirical, or statistics.input_moments.directions=8")
    statistics.add_argument("-o", "--out", type=Path, required=True, help="file to write, which ends with .safetensors")
    statistics.set_defaults(command=_statistics)

    merge = add_command(
        commands,
        "merge",
        "merge clients' files, or PEFT's folders of adapters, by a method",
        "merge client_0.safetensors client_1.safetensors --method fedfisher_kfac -o merged.safetensors",
        "merge adapter_0 adapter_1 --method flexlora -o merged",
    )
    merge.add_argument("clients", type=Path, nargs="+", help="files of `fedfisher statistics`, or folders of PEFT")
    merge.add_argument("--method", required=True, help="one that `fedfisher methods` lists")
    merge.add_argument("--network", help=f"{_NETWORK}; needed where the clients' files name a function")
    merge.add_argument("--validation", type=Path, metavar="FOLDER", help="has inputs.npy and labels.npy of the server")
    merge.add_argument("--initial", type=Path, help="file of the weights that all clients started from")
    merge.add_argument("--budget", help="bits of an upload: none, fedavg or a number (default: none)")
    merge.add_argument("--format", help="how it is met: fedfisher (default), paper or float32")
    merge.add_argument("--seed", type=_count, default=0, help="of what the method draws (default: 0)")
    add_overrides(merge, "a setting of the method, such as 'off_diagonal=[0.9]'")
    merge.add_argument(
        "-o",
        "--out",
        type=Path,
        required=True,
        help="file to write, which ends with .safetensors; of adapters, a new folder",
    )
    merge.set_defaults(command=_merge)

    export = add_command(
        commands,
        "export",
        "write the global network of a finished benchmark, for torch alone",
        "export demo --method fedavg --seed 0 --setting alpha=0.1 -o network",
    )
    export.add_argument("name", help="the benchmark's name, a folder of the reports")
    export.add_argument("--method", required=True, help="its label in the report")
    export.add_argument("--seed", type=_count, help="of the row")
    which = "a value of the row where a method has several, such as alpha=0.1"
    export.add_argument("--setting", action="append", default=[], metavar="KEY=VALUE", help=which)
    export.add_argument("config", nargs="?", type=Path, default=PARAMS, help=f"names the store (default: {PARAMS})")
    add_overrides(export, "a setting of the configuration, such as run.store=FOLDER")
    export.add_argument("--onnx", action="store_true", help="write network.onnx too (needs the extra onnx)")
    export.add_argument("-o", "--out", type=Path, required=True, help="the folder to write; it must not be there")
    export.set_defaults(command=_export)


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**32):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: whole numbers from 0 to {2**32 - 1}")
    return int(text)


def _positive(text: str) -> int:
    if (number := _count(text)) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: whole numbers from 1")
    return number


def _statistics(options: argparse.Namespace) -> None:
    from fedfisher import Client, write_client
    from fedfisher.building import build, example_files, layout_of_examples, read_examples
    from fedfisher_core.models.trunks.reading import read_weights_file

    chosen = _chosen(options.overrides)
    for key, group in chosen.items():
        if key not in ("fisher", "statistics") or not isinstance(group, dict):
            raise InputError(f"--set {shown(key)}; allowed: keys that begin with fisher. or statistics.")
    if ":" in options.network and options.classes is not None:
        raise InputError(
            f"--classes={options.classes} with --network={options.network}, a function that knows how many; allowed: "
            "without, or with the name of a network"
        )
    _require_new_place([options.weights, *example_files(options.data)], options.out)
    inputs, labels = read_examples(options.data)
    weights = dict(read_weights_file(options.weights, str(options.weights)))
    layout = None if ":" in options.network else layout_of_examples(inputs)
    model = build(options.network, layout, options.classes, weights)
    client = Client(model, (inputs, labels), weights=weights, fisher=chosen.get("fisher"))
    asked, settings = [one.strip() for one in options.of.split(",")], chosen.get("statistics")
    write_client(client, options.out, of=asked, settings=settings, builder=options.network)
    print(options.out)


def _merge(options: argparse.Namespace) -> None:
    if any(path.is_dir() for path in options.clients):
        _merge_adapters(options)
    else:
        _merge_files(options)
    print(options.out)


def _merge_adapters(options: argparse.Namespace) -> None:
    from fedfisher import merge_adapters, read_adapter, write_adapter
    from fedfisher_core.engine.seeds import Stream, torch_generator
    from fedfisher_core.methods.configured import choose_settings
    from fedfisher_core.methods.method import methods

    for name in ("network", "validation", "initial", "budget", "format"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name} with folders of adapters, which are merged as they are; allowed: with files")
    if options.out.exists():
        raise InputError(f"--out={options.out} is there; allowed: a new folder")
    _require_each_once(options.clients)
    settings = _chosen(options.overrides)
    choose_settings(options.method, methods.get(options.method), settings)
    adapters = [read_adapter(path) for path in options.clients]
    generator = torch_generator(options.seed, Stream.SERVER)
    write_adapter(merge_adapters(adapters, method=options.method, generator=generator, **settings), options.out)


def _merge_files(options: argparse.Namespace) -> None:
    from fedfisher import merge, read_client
    from fedfisher.building import example_files, read_examples
    from fedfisher.files import read_header, require_ending, write_merged
    from fedfisher_core.engine.seeds import Stream, torch_generator
    from fedfisher_core.methods.configured import choose_settings
    from fedfisher_core.methods.method import methods
    from fedfisher_core.models.trunks.reading import read_weights_file

    settings = _chosen(options.overrides)
    choose_settings(options.method, methods.get(options.method), settings)
    _require_each_once(options.clients)
    read = [*options.clients, *([options.initial] if options.initial else [])]
    read += example_files(options.validation) if options.validation else []
    _require_new_place(read, options.out)
    require_ending(options.out)
    headers = [read_header(path) for path in options.clients]
    model = _network_of(headers, options)
    clients = [read_client(path, model) for path in options.clients]
    initial = None
    if options.initial is not None:
        network, who = clients[0].network, str(options.initial)
        initial = network.spec.load(network.read(read_weights_file(options.initial, who), who=who))
    budget = options.budget or "none"
    merged = merge(
        clients,
        method=options.method,
        validation=None if options.validation is None else read_examples(options.validation),
        initial=initial,
        statistics={name: one.settings for name, one in headers[0].statistics.items()},
        budget=int(budget) if budget.isdecimal() else budget,
        format=options.format or "fedfisher",
        generator=torch_generator(options.seed, Stream.SERVER),
        **settings,
    )
    write_merged(merged, options.out, method=options.method, settings=settings, clients=clients)


def _require_each_once(clients: Sequence[Path]) -> None:
    """Refuse a client that is named twice."""
    found = [path.resolve() for path in clients]
    for number, path in enumerate(clients):
        if found[number] in found[:number]:
            raise InputError(f"{path} is named twice; allowed: each client once")


def _require_new_place(read: Sequence[Path], out: Path) -> None:
    """Refuse a result that would replace what the command reads."""
    if out.resolve() in [path.resolve() for path in read]:
        raise InputError(f"--out={out} is read by the command, which would replace it; allowed: another path")


def _network_of(headers: Sequence["ClientHeader"], options: argparse.Namespace) -> "nn.Module":
    """Build the network of clients' files; a function that a file names is called only if the command line names it."""
    from fedfisher.building import build
    from fedfisher.files import layout_of

    network, builder = headers[0].network, options.network or headers[0].network.builder
    if builder is None:
        raise InputError(f"{options.clients[0]} does not say what builds its network; allowed: --network=NAME")
    if options.network is None and ":" in builder:
        raise InputError(
            f"{options.clients[0]} names the function {shown(builder)}, which is not called unasked; allowed: --network"
        )
    weights = headers[0].statistics.get("weights")
    return build(builder, layout_of(network), network.classes, weights.shapes if weights is not None else ())


def _export(options: argparse.Namespace) -> None:
    from fedfisher.exporting import choose_row, export
    from fedfisher_core.engine.store import open_store
    from fedfisher_core.experiments.contract import load

    settings = _chosen(options.setting) | ({} if options.seed is None else {"seed": options.seed})
    run = load(options.config, options.overrides).run
    folder = find_report(options.name, list(dict.fromkeys((run.reports, *REPORTS))))
    row = choose_row(folder, method=options.method, settings=settings)
    export(row, open_store(run.store, run.cache), options.out, onnx=options.onnx)
    print(options.out)


def _chosen(overrides: Sequence[str]) -> dict[str, Any]:
    """Read the settings of the command line."""
    from fedfisher_core.settings.reading import override

    content: dict[str, Any] = {}
    for text in overrides:
        override(content, text)
    return content
