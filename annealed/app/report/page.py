"""The page of a report: one HTML file with all figures, texts and scripts."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from string import Template

from annealed.optional import require

HEADINGS = {
    "path": (
        "Annealing path",
        "Score of the training samples and of the held-out samples at each temperature. The vertical line marks the "
        "chosen temperature. The choice also depends on calibration, so it may differ from the best validation score.",
    ),
    "confusion": (
        "Confusion matrix",
        "Number of samples by true and predicted class. The colour shows the share of the true class.",
    ),
    "reliability": (
        "Reliability",
        "How often predictions of a given confidence (the probability of the predicted class) are correct. On the "
        "dotted line, accuracy equals confidence. Larger dots represent more samples.",
    ),
    "plane": (
        "Projection of the samples",
        "The two directions that separate the classes best; with two classes, the second is the direction of largest "
        "remaining variance. Background: predicted class of an average sample at that point, in a stronger colour if "
        "its probability is higher. Circles: misclassified samples.",
    ),
    "features": (
        "Strongest features",
        "Change of the logit of a class when a feature increases by one standard deviation: towards the class (blue) "
        "or away from it (orange).",
    ),
    "prototypes": (
        "Prototypes",
        "Each row is a prototype, with its most probable class. Each column is a feature: above its mean (blue) or "
        "below (orange), in standard deviations. The features in which the prototypes differ most are shown.",
    ),
}
WIDE = {"path"}
OPTIONS = {"responsive": True, "displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d", "toImage"]}


def page(title, subtitle, figures, tables, card, numbers, chosen, classes) -> str:
    """The content of the HTML file."""
    template = Template(files("annealed.app.report").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(title),
        subtitle=escape(subtitle),
        plotlyjs=require("plotly.offline", extra="cli").get_plotlyjs(),
        panels="\n".join(_panel(name, figure, classes, tables.get(name)) for name, figure in figures.items()),
        card="".join(_section(heading, entries) for heading, entries in card.items()),
        numbers=_in_script(numbers),
        animated=_in_script([name for name, figure in figures.items() if figure.frames]),
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
    """A figure's numbers as a table, for screen readers and for copying."""
    if not lines:
        return ""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in lines[0])
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for name, *cells in lines[1:]
    )
    return (
        "<details><summary>As a table (at the chosen temperature)</summary>"
        f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>'
    )


def _class_choice(classes):
    options = "".join(f'<option value="{code}">{escape(name)}</option>' for code, name in enumerate(classes))
    return f'<label>class <select id="class">{options}</select></label>'


def _section(heading, entries):
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in entries)
    return f"<div><h3>{escape(heading)}</h3><dl>{items}</dl></div>"


def _in_script(value):
    """JSON in which no text can end the surrounding script element."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
