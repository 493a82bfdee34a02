"""The report's page: figures and texts set into one HTML file that needs nothing from outside."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from string import Template

from annealed.optional import require

HEADINGS = {
    "path": ("The path", "Loss while the temperature falls; the line marks the temperature that validation chose."),
    "confusion": ("Confusion", "Rows by true and predicted class; the colour is the share of the true class."),
    "reliability": ("Reliability", "Is a prediction as often right as it says? Larger dots stand for more rows."),
    "plane": (
        "The classes in a plane",
        "Two directions that tell the classes apart. Colours: the class predicted for the typical row at each place, "
        "the fuller the more certain. Rings: rows predicted wrongly.",
    ),
    "features": (
        "Strongest features",
        "How far a standard deviation more moves the logit of a class: for it (blue) or against it (orange).",
    ),
    "prototypes": (
        "Prototypes",
        "What rows are compared with, and for whom each speaks: above the mean (blue) or below it (orange), in "
        "standard deviations, where they differ most.",
    ),
}
WIDE = {"path"}
OPTIONS = {"responsive": True, "displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d", "toImage"]}


def page(title, subtitle, figures, tables, card, numbers, chosen, classes) -> str:
    """The whole file as text."""
    template = Template(files("annealed.export.report").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(title),
        subtitle=escape(subtitle),
        plotlyjs=require("plotly.offline", extra="cli").get_plotlyjs(),
        panels="\n".join(_panel(name, own, classes, tables.get(name)) for name, own in figures.items()),
        card="".join(_section(heading, rows) for heading, rows in card.items()),
        numbers=_in_script(numbers),
        moving=_in_script([name for name, figure in figures.items() if figure.frames]),
        **{name: escape(text) for name, text in numbers[chosen].items()},
        last=len(numbers) - 1,
        chosen=chosen,
        wrong=len(classes) + 1,
        still="" if len(numbers) > 1 else " still",
    )


def _panel(name, figure, classes, table):
    heading, caption = HEADINGS[name]
    picture = figure.to_html(
        full_html=False, include_plotlyjs=False, auto_play=False, div_id=name, config=OPTIONS, include_mathjax=False
    )
    wide = " wide" if name in WIDE else ""
    choice = _class_choice(classes) if name == "features" else ""
    return (
        f'<section class="panel{wide}"><h2>{escape(heading)}</h2><p>{escape(caption)}</p>{choice}'
        f'<div class="picture" role="figure" aria-label="{escape(heading)}">{picture}</div>{_table(table)}</section>'
    )


def _table(lines):
    """For those who do not see the picture, and to copy."""
    if not lines:
        return ""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in lines[0])
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for name, *cells in lines[1:]
    )
    return (
        "<details><summary>As a table, at the chosen temperature</summary>"
        f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>'
    )


def _class_choice(classes):
    options = "".join(f'<option value="{place}">{escape(name)}</option>' for place, name in enumerate(classes))
    return f'<select id="class" aria-label="class">{options}</select>'


def _section(heading, rows):
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows)
    return f"<div><h3>{escape(heading)}</h3><dl>{items}</dl></div>"


def _in_script(value):
    """JSON that cannot end the script it stands in."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
