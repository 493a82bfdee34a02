"""The report: honest numbers, everything escaped, nothing fetched; in a real browser where there is one."""

import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.datasets import load_iris

from annealed.comparison import OURS, fit_table
from annealed.export import write_report
from annealed.tables import InputError, label_table

pandas = pytest.importorskip("pandas")
pytest.importorskip("plotly")
HOSTILE = "<script>alert(1)</script>"
HOSTILE_COLUMN = "</script><img src=x onerror=alert(2)>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def flowers():
    frame = load_iris(as_frame=True).frame.rename(columns={"target": "species", "petal width (cm)": HOSTILE_COLUMN})
    frame["species"] = np.array(["setosa", HOSTILE, "virginica"])[frame["species"]]
    return frame


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    frame = flowers()
    write_report(fit_table(label_table(frame, "species"), "inner-product"), frame, path)
    return path


class Tags(HTMLParser):
    """Every tag with its attributes, and the text outside scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self._is_script = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._is_script = tag in ("script", "style")

    def handle_endtag(self, tag):
        self._is_script = False

    def handle_data(self, data):
        if not self._is_script:
            self.texts.append(data)


def test_names_from_the_data_are_text(report):
    page = Tags(report.read_text())
    assert "img" not in [tag for tag, _ in page.tags]
    assert HOSTILE in "".join(page.texts)
    assert not re.search(r"<script>alert\(1\)|<img src=x", report.read_text())


def test_nothing_is_fetched(report):
    for tag, attributes in Tags(report.read_text()).tags:
        assert "src" not in attributes
        assert attributes.get("href", "data:,").startswith("data:"), tag


def test_own_rows_are_judged_by_fits_that_did_not_see_them(tmp_path):
    frame = flowers()
    model = fit_table(label_table(frame, "species"), "inner-product")
    write_report(model, frame, tmp_path / "own.html")
    write_report(model, frame.iloc[::2], tmp_path / "others.html")
    assert "each judged by a fit that did not see it" in (tmp_path / "own.html").read_text()
    assert "75 rows, judged by the model" in (tmp_path / "others.html").read_text()


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_estimator_has_a_report(tmp_path, name, n_classes):
    frame = flowers().iloc[: 50 * n_classes]
    model = fit_table(label_table(frame, "species"), name)
    write_report(model, frame, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert 'id="plane"' in text
    assert ('id="prototypes"' in text) == (name == "potts")
    assert ('id="path"' in text) == (name != "potts")


def test_held_out_posterior_is_that_of_fresh_fits():
    from annealed.export.report.points import report_data

    frame = flowers()
    model = fit_table(label_table(frame, "species"), "inner-product")
    data = report_data(model, frame)
    given = data.posterior[data.chosen, np.arange(150), data.labels]
    path = model.path
    assert abs(-np.log(given).mean() + path.validation_score[path.best_index].mean()) < 0.03
    assert np.allclose(data.posterior.sum(axis=2), 1)


def test_one_column_and_a_class_of_one_row(tmp_path):
    frame = flowers()[["petal length (cm)", "species"]]
    frame.loc[0, "species"] = "unique"
    model = fit_table(label_table(frame, "species"), "inner-product")
    write_report(model, frame, tmp_path / "report.html")
    assert "149 rows" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda frame: frame.drop(columns="species"), "no column 'species', the target"),
        (lambda frame: frame.assign(species="tulip"), "a class that the model does not know: 'tulip'"),
    ],
)
def test_tables_that_do_not_fit_the_model(tmp_path, change, sentence):
    frame = flowers()
    model = fit_table(label_table(frame, "species"), "inner-product")
    with pytest.raises(InputError, match=sentence):
        write_report(model, change(frame), tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("n_right", "n_rows"), [(0, 1), (1, 1), (3, 7), (40, 40), (999, 1000)])
def test_intervals_of_shares_are_wilsons(n_right, n_rows):
    from annealed.export.report.base import share_interval

    wanted = binomtest(n_right, n_rows).proportion_ci(method="wilson")
    assert np.allclose(share_interval(n_right / n_rows, n_rows), wanted, atol=1e-12)


def test_long_names_stay_different():
    from annealed.export.report.figures import _short

    assert _short(["a" * 30, "b"]) == ["a" * 17 + "…", "b"]
    same = _short([f"{'a' * 30} = {own}" for own in ("red", "blue")])
    assert same[0].endswith("= red") and same[1].endswith("= blue") and len(set(map(len, same))) == 1
    assert _short(["<b>"]) == ["&lt;b&gt;"]


# --- in a browser -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install 'annealed[browser]'")
    if CHROMIUM is None:
        pytest.skip("needs a Chromium, such as Debian's package chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_in_a_browser(report, browser, tmp_path, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said, asked, dialogs = [], [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(report.as_uri())
    page.wait_for_selector("#features .bars")

    def seen():
        places = {"confusion": "data[0].text", "plane": "data[0].z", "reliability": "data[1].y"}
        drawn = [page.eval_on_selector(f"#{n}", f"own => JSON.stringify(own.{what})") for n, what in places.items()]
        return [page.inner_text("#temperature"), page.inner_text("#error"), *drawn]

    before = seen()
    assert "chosen by validation" in page.inner_text(".numbers")
    page.focus("#slider")
    for _ in range(9):
        page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(300)
    after = seen()
    assert [old != new for old, new in zip(before, after, strict=True)] == [True] * 5
    page.select_option("#class", "1")
    assert HOSTILE in page.inner_text("#plane")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    sizes = "[...document.querySelectorAll('.js-plotly-plot')].map(own => own._fullLayout.width - own.clientWidth)"
    assert max(page.evaluate(sizes)) <= 1
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(244, 246, 248)" if scheme == "light" else "rgb(20, 24, 28)"
    )
    assert (said, dialogs, asked) == ([], [], [report.as_uri()])
    page.screenshot(path=tmp_path / "report.png", full_page=True)
    page.close()
