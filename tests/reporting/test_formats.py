from fedfisher_core.reporting.formats import points, seconds, setting_value, settings_groups


def test_nested_settings_become_groups_with_dotted_names() -> None:
    data = {"alpha": [0.1, 0.2], "noise": {"level": None}}
    settings = {"name": "x", "data": data, "methods": {"fedavg": {}}}
    assert settings_groups(settings) == [
        ("general", [("name", "x")]),
        ("data", [("alpha", "0.1, 0.2")]),
        ("data.noise", [("level", "none")]),
        ("methods", [("fedavg", "none")]),
    ]
    assert setting_value([{"a": 1, "b": True}]) == "a = 1, b = true"


def test_numbers_are_written_plainly() -> None:
    assert points(-0.0123) == "\u22121.23"
    assert points(-0.000001) == "0.00"
    assert points(0.5) == "+50.00"
    assert seconds(0.001) == "<\u20090.01"
    assert seconds(0.0) == "0.00"
