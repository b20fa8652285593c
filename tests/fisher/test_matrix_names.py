import pytest
import torch

from fedfisher_core.fisher.layers import MatrixName, from_matrix, join, matrix_names, to_matrix

PARAMETERS = {
    "a.conv.weight": torch.arange(24.0).view(6, 2, 1, 2),
    "a.conv.bias": torch.arange(6.0) - 10,
    "head.weight": torch.arange(6.0).view(3, 2),
}


def test_a_name_tells_the_layer_and_the_group() -> None:
    assert matrix_names("a.conv", 1) == ["a.conv"]
    assert matrix_names("a.conv", 3) == ["a.conv[1 of 3]", "a.conv[2 of 3]", "a.conv[3 of 3]"]
    assert MatrixName.of("a.conv[2 of 3]") == MatrixName("a.conv", 2, 3)
    assert MatrixName.of("a.conv") == MatrixName("a.conv")


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_the_matrices_of_a_layer_are_its_rows_one_group_after_another(groups: int) -> None:
    whole = torch.cat([PARAMETERS["a.conv.weight"].flatten(1), PARAMETERS["a.conv.bias"][:, None]], dim=1)
    matrices = [to_matrix(PARAMETERS, name) for name in matrix_names("a.conv", groups)]
    assert [len(one) for one in matrices] == [6 // groups] * groups
    assert torch.equal(torch.cat(matrices), whole)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_matrices_are_put_together_to_the_parameters(groups: int) -> None:
    names = [*matrix_names("a.conv", groups), "head"]
    back = join(from_matrix(to_matrix(PARAMETERS, name), name, PARAMETERS) for name in names)
    assert list(back) == list(PARAMETERS)
    assert all(torch.equal(back[name], tensor) for name, tensor in PARAMETERS.items())
