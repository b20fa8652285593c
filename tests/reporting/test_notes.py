from fedfisher_core.reporting.page import notes_html


def test_notes_know_paragraphs_lists_and_little_else() -> None:
    html = notes_html("One *two*\nthree **four** `a*b*<c>`\n- x\n- y\n  z\n\n5 * 6 * 7, fed_avg <i>")
    assert html == (
        "<p>One <em>two</em> three <strong>four</strong> <code>a*b*&lt;c&gt;</code></p>\n"
        "<ul><li>x</li><li>y z</li></ul>\n"
        "<p>5 * 6 * 7, fed_avg &lt;i&gt;</p>"
    )
    assert notes_html(" \n ") == ""


def test_notes_link_to_the_web_and_to_other_reports_alone() -> None:
    html = notes_html("[one *two*](../other/index.html), [three](https://example.org/?a=1&b=2)")
    assert html == (
        '<p><a href="../other/index.html">one <em>two</em></a>, '
        '<a href="https://example.org/?a=1&amp;b=2">three</a></p>'
    )
    for other in ("[x](javascript:alert(1))", "[x](data:text/html,y)", "f[0](x)", "`[a](../b)`"):
        assert "<a " not in notes_html(other)
    assert notes_html('[x](../"onclick="y)') == '<p><a href="../&#34;onclick=&#34;y">x</a></p>'
