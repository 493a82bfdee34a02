"""The report: honest numbers, everything escaped, nothing fetched; in a real browser where there is one."""

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.datasets import load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import Pipeline

from annealed import AnnealedClassifier
from annealed.comparison import OURS, fit_table
from annealed.export import load_model, save_model, write_report
from annealed.export.report.points import report_data
from annealed.objectives import Quadratic
from annealed.tables import InputError, TableModel, label_table, make_vectorizer

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
    write_report(fit_table(label_table(frame, "species"), "logistic"), frame, path)
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


def test_what_a_picture_shows_is_said_too(report):
    """The numbers of the chosen temperature and the confusion stand in the file, without a script or a pointer."""
    page = Tags(report.read_text())
    attributes = {own.get("id"): tag for tag, own in page.tags}
    assert attributes["temperature"] == "b" and float(page.texts[page.texts.index("temperature ") + 1]) > 0
    labels = [own["aria-label"] for _, own in page.tags if own.get("role") == "figure"]
    assert "Confusion" in labels and len(labels) == report.read_text().count('class="picture"')
    first = page.texts.index("true, predicted (rows)")
    cells = page.texts[first + 1 : first + 4 + 3 * 4]
    assert cells[:3] == cells[3::4] == [HOSTILE, "setosa", "virginica"]
    counts = np.array([[int(cell) for cell in cells[place : place + 3]] for place in (4, 8, 12)])
    assert counts.sum(axis=1).tolist() == [50, 50, 50] and counts.trace() > 140


def test_nothing_is_fetched(report):
    for tag, attributes in Tags(report.read_text()).tags:
        assert "src" not in attributes
        assert attributes.get("href", "data:,").startswith("data:"), tag


@pytest.fixture(scope="module")
def guesses():
    """A model of labels without any relation to many columns, which it knows by heart, and its table."""
    generator = np.random.default_rng(0)
    frame = pandas.DataFrame(generator.normal(size=(60, 80))).rename(columns=lambda own: f"column {own}")
    frame["side"] = np.where(np.arange(60) % 2, "heads", "tails")
    return fit_table(label_table(frame, "side"), "logistic"), frame


def error_of(data):
    return np.mean(data.predicted[data.chosen] != data.labels)


@pytest.mark.parametrize(
    "given",
    [lambda frame: frame, lambda frame: frame.iloc[::-1], lambda frame: frame.iloc[1:], lambda frame: frame.iloc[:40]],
    ids=["as fitted", "turned round", "less one", "two thirds"],
)
def test_own_rows_are_judged_by_fits_that_did_not_see_them(guesses, given):
    model, frame = guesses
    data = report_data(model, given(frame))
    assert data.was_seen.all() and data.is_held_out.all()
    assert error_of(data) > 0.25


def test_rows_of_an_own_table_and_new_ones_have_each_their_judge(guesses, tmp_path):
    model, frame = guesses
    new = frame.assign(**{"column 0": frame["column 0"] + 1e-6}).head(9)
    both = pandas.concat([new, frame])
    data = report_data(model, both)
    np.testing.assert_array_equal(data.is_held_out, np.arange(69) >= 9)
    alone = report_data(model, new)
    assert not alone.was_seen.any()
    np.testing.assert_allclose(data.posterior[:, :9], alone.posterior)
    np.testing.assert_allclose(data.posterior[:, 9:], report_data(model, frame).posterior)
    write_report(model, both, tmp_path / "both.html")
    assert "69 rows, 60 judged by fits that did not see them, the others" in (tmp_path / "both.html").read_text()
    write_report(model, new, tmp_path / "new.html")
    assert "9 rows, judged by the model, to which they are new" in (tmp_path / "new.html").read_text()


def test_a_label_changed_makes_a_new_row(guesses):
    model, frame = guesses
    other = frame.assign(side=frame["side"].map({"heads": "tails", "tails": "heads"}))
    assert not report_data(model, other).was_seen.any()


@pytest.mark.parametrize("chosen", [np.arange(6), np.arange(0, 60, 2)], ids=["few", "of one class"])
def test_own_rows_too_few_for_folds_are_named(guesses, tmp_path, chosen):
    model, frame = guesses
    with pytest.warns(
        UserWarning, match=f"{len(chosen)} of {len(chosen)} rows equal rows that the model was fitted on"
    ):
        write_report(model, frame.iloc[chosen], tmp_path / "few.html")
    wanted = f"judged by the model, which was fitted on rows equal to {len(chosen)} of them"
    assert wanted in (tmp_path / "few.html").read_text()


def test_a_file_that_does_not_tell_its_rows(guesses, tmp_path):
    """As older versions wrote them."""
    model, frame = guesses
    del (facts := dict(model.facts))["row_hashes"]
    save_model(replace(model, facts=facts), tmp_path / "old.skops")
    with pytest.warns(UserWarning, match="of an older version, which does not say what rows"):
        write_report(load_model(tmp_path / "old.skops"), frame, tmp_path / "old.html")
    assert "whose file does not say whether it was fitted on them" in (tmp_path / "old.html").read_text()


def test_of_many_rows_every_class_stays(monkeypatch):
    """Though the sample is small and a class rare."""
    monkeypatch.setattr("annealed.export.report.points.MOST_ROWS", 30)
    frame = flowers()
    frame.loc[3:5, "species"] = "rare"
    model = fit_table(label_table(frame, "species"), "logistic")
    data = report_data(model, frame)
    assert data.posterior.shape[2] == 4 and data.is_held_out.all()
    assert 25 <= len(data.labels) <= 34


def answers(rows):
    return pandas.DataFrame(rows * 10, columns=["paid", "colour", "out"])


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(
    "rows",
    [
        [("yes", "red", "stay"), ("no", "red", "stay"), ("yes", "red", "leave"), ("no", "red", "leave")],
        [("yes", "red", "stay"), ("no", "blue", "leave"), ("no", "blue", "leave")],
        [("yes", "red", "stay"), ("yes", "blue", "leave"), ("no", "red", "wait")],
    ],
    ids=["classes that do not differ", "a row a class", "a row each of three classes"],
)
def test_tables_of_few_different_rows(name, rows):
    frame = answers(rows)
    model = fit_table(label_table(frame, "out"), name)
    assert np.isfinite(report_data(model, frame).plane.points).all()
    new = pandas.DataFrame([("maybe", "green", "stay")] * 5, columns=frame.columns)
    plane = report_data(model, new).plane
    assert np.isfinite(plane.points).all() and np.isfinite(plane.certainty).all()


def test_the_plane_shows_the_directions_that_tell_classes_apart():
    """Of a model that is not linear: those of linear discriminant analysis, but for their signs."""
    frame = flowers()
    data = report_data(fit_table(label_table(frame, "species"), "potts"), frame)
    expected = LinearDiscriminantAnalysis().fit(frame.drop(columns="species"), frame["species"])
    expected = expected.transform(frame.drop(columns="species"))
    for place in range(2):
        assert abs(np.corrcoef(expected[:, place], data.plane.points[:, place])[0, 1]) > 1 - 1e-8


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


def test_a_quadratic_family_has_no_strength_of_features(tmp_path):
    frame = flowers()
    table = label_table(frame, "species")
    steps = [("table", make_vectorizer(table.columns)), ("model", AnnealedClassifier(Quadratic()))]
    model = TableModel(Pipeline(steps).fit(table.conformed(), table.labels), table.columns, table.target, "quadratic")
    with pytest.warns(UserWarning, match="does not say what rows"):
        write_report(model, frame, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert 'id="plane"' in text and 'id="features"' not in text


def test_held_out_posterior_is_that_of_fresh_fits():
    frame = flowers()
    model = fit_table(label_table(frame, "species"), "logistic")
    data = report_data(model, frame)
    given = data.posterior[data.chosen, np.arange(150), data.labels]
    path = model.path
    assert abs(-np.log(given).mean() + path.validation_score[path.best_index].mean()) < 0.03
    assert np.allclose(data.posterior.sum(axis=2), 1)


def test_one_column_and_a_class_of_one_row(tmp_path):
    frame = flowers()[["petal length (cm)", "species"]]
    frame.loc[0, "species"] = "unique"
    model = fit_table(label_table(frame, "species"), "logistic")
    write_report(model, frame, tmp_path / "report.html")
    assert "149 rows" in (tmp_path / "report.html").read_text()


def test_classes_of_one_row_each(tmp_path):
    """Nothing can be left out, so that the model itself judges."""
    frame = flowers().iloc[[0, 60, 120]]
    with pytest.warns(UserWarning, match="Every class has a single row"):
        model = fit_table(label_table(frame, "species"), "logistic")
    with pytest.warns(UserWarning, match="3 of 3 rows equal rows that the model was fitted on, but they are too few"):
        write_report(model, frame, tmp_path / "report.html")
    assert "judged by the model, which was fitted on rows equal to 3 of them" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda frame: frame.drop(columns="species"), "no column 'species', the target"),
        (lambda frame: frame.assign(species="tulip"), "a class that the model does not know: 'tulip'"),
    ],
)
def test_tables_that_do_not_fit_the_model(tmp_path, change, sentence):
    frame = flowers()
    model = fit_table(label_table(frame, "species"), "logistic")
    with pytest.raises(InputError, match=sentence):
        write_report(model, change(frame), tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_rows_with_weights(tmp_path):
    """They weigh in the fits of folds and in every score; those of weight 0 are not there."""
    frame = flowers().assign(trust=np.arange(150) % 3)
    model = fit_table(label_table(frame, "species", "trust"), "logistic")
    data = report_data(model, frame)
    assert data.is_held_out.all()
    assert data.weights.tolist() == [1, 2] * 50
    given = data.posterior[data.chosen, np.arange(100), data.labels]
    path = model.path
    assert abs(np.average(-np.log(given), weights=data.weights) + path.validation_score[path.best_index].mean()) < 0.03
    write_report(model, frame, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    error = np.average(data.predicted[data.chosen] != data.labels, weights=data.weights)
    assert f"<dd>{error:.2%} (95 % interval" in page
    assert "100 rows weighted by &#x27;trust&#x27;, each judged" in page
    assert '["0","49","0"]' in page  # what the setosas weigh
    with pytest.raises(InputError, match="no column 'trust', the weights of the model's rows: add it, with 1"):
        report_data(model, frame.drop(columns="trust"))


@pytest.mark.filterwarnings("ignore:Not converged")
def test_folds_that_cannot_be_fitted_are_told():
    """Without the row of a class that outweighs all others of it, the class weighs nothing."""
    frame = flowers().assign(trust=np.where(np.arange(150) % 50, 1, 1e20))
    model = fit_table(label_table(frame, "species", "trust"), "logistic")
    sentence = "without some of them it cannot be fitted: y must hold .* weigh 0. Give rows that it was not fitted on."
    with pytest.raises(InputError, match=sentence):
        report_data(model, frame)
    assert not report_data(model, frame.assign(**{HOSTILE_COLUMN: -1.0})).was_seen.any()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0.0, "0"), (20000.0, "20000"), (12.0625, "12.0625"), (1 / 3, "0.333333"), (1.5e9, "1500000000"), (2e90, "2e+90")],
)
def test_sums_of_weights_are_short(count, text):
    from annealed.export.report.base import written

    assert written(count) == text


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e90])
def test_effective_rows_are_kishs(scale):
    from annealed.export.report.base import effective_rows

    assert effective_rows(scale * np.array([1.0, 1, 1])) == pytest.approx(3)
    assert effective_rows(scale * np.array([3.0, 1])) == pytest.approx(1.6)


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
