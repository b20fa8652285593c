from fedfisher_core.reporting.notes import notes_html


def test_notes_know_paragraphs_lists_and_little_else() -> None:
    html = notes_html("One *two*\nthree **four** `a*b*<c>`\n- x\n- y\n  z\n\n5 * 6 * 7, fed_avg <i>")
    assert html == (
        "<p>One <em>two</em> three <strong>four</strong> <code>a*b*&lt;c&gt;</code></p>\n"
        "<ul><li>x</li><li>y z</li></ul>\n"
        "<p>5 * 6 * 7, fed_avg &lt;i&gt;</p>"
    )
    assert notes_html(" \n ") == ""
