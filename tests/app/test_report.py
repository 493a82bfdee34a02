"""The report: correct scores, escaped texts, no network access; also in a browser if one is installed."""

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.datasets import load_iris, make_circles
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import Pipeline

from annealed import AnnealedClassifier
from annealed.app.comparison import OURS, fit_table
from annealed.app.report import write_report
from annealed.app.report.card import card
from annealed.app.report.points import report_data
from annealed.app.tables import TableModel, label_table, make_vectorizer
from annealed.errors import InputError
from annealed.problems import Quadratic

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
    """All tags with their attributes, and the text outside scripts."""

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


def test_names_from_the_data_are_escaped(report):
    page = Tags(report.read_text())
    assert "img" not in [tag for tag, _ in page.tags]
    assert HOSTILE in "".join(page.texts)
    assert not re.search(r"<script>alert\(1\)|<img src=x", report.read_text())


def test_figures_have_a_text_alternative(report):
    """The scores at the chosen temperature and the confusion matrix are in the file as text, without a script."""
    page = Tags(report.read_text())
    tags = {attributes.get("id"): tag for tag, attributes in page.tags}
    assert tags["temperature"] == "b" and float(page.texts[page.texts.index("temperature ") + 1]) > 0
    labels = [attributes["aria-label"] for _, attributes in page.tags if attributes.get("role") == "figure"]
    assert "Confusion matrix" in labels and len(labels) == report.read_text().count('class="picture"')
    first = page.texts.index("true class, predicted class (samples)")
    cells = page.texts[first + 1 : first + 4 + 3 * 4]
    assert cells[:3] == cells[3::4] == [HOSTILE, "setosa", "virginica"]
    counts = np.array([[int(cell) for cell in cells[start : start + 3]] for start in (4, 8, 12)])
    assert counts.sum(axis=1).tolist() == [50, 50, 50] and counts.trace() > 140


def test_nothing_is_fetched(report):
    for tag, attributes in Tags(report.read_text()).tags:
        assert "src" not in attributes
        assert attributes.get("href", "data:,").startswith("data:"), tag


@pytest.fixture(scope="module")
def overfitted():
    """A model that has overfitted many features that are unrelated to the labels, and its table."""
    generator = np.random.default_rng(0)
    frame = pandas.DataFrame(generator.normal(size=(60, 80))).rename(columns=lambda number: f"column {number}")
    frame["side"] = np.where(np.arange(60) % 2, "heads", "tails")
    return fit_table(label_table(frame, "side"), "logistic"), frame


def error_of(data):
    return np.mean(data.predicted[data.chosen] != data.labels)


@pytest.mark.parametrize(
    "select",
    [lambda frame: frame, lambda frame: frame.iloc[::-1], lambda frame: frame.iloc[1:], lambda frame: frame.iloc[:40]],
    ids=["same order", "reversed", "one missing", "two thirds"],
)
def test_training_rows_are_predicted_by_cross_validation(overfitted, select):
    model, frame = overfitted
    data = report_data(model, select(frame))
    assert data.in_training.all() and data.is_held_out.all()
    assert error_of(data) > 0.25


def test_training_rows_and_new_rows_in_one_table(overfitted, tmp_path):
    model, frame = overfitted
    new = frame.assign(**{"column 0": frame["column 0"] + 1e-6}).head(9)
    both = pandas.concat([new, frame])
    data = report_data(model, both)
    np.testing.assert_array_equal(data.is_held_out, np.arange(69) >= 9)
    alone = report_data(model, new)
    assert not alone.in_training.any()
    np.testing.assert_allclose(data.posterior[:, :9], alone.posterior)
    np.testing.assert_allclose(data.posterior[:, 9:], report_data(model, frame).posterior)
    write_report(model, both, tmp_path / "both.html")
    wanted = "69 samples, 60 predicted by cross-validation fits without them, and the new ones by the model"
    assert wanted in (tmp_path / "both.html").read_text()
    write_report(model, new, tmp_path / "new.html")
    wanted = "9 samples, predicted by the model, which was not fitted on them"
    assert wanted in (tmp_path / "new.html").read_text()


def test_a_row_with_another_label_is_new(overfitted):
    model, frame = overfitted
    other = frame.assign(side=frame["side"].map({"heads": "tails", "tails": "heads"}))
    assert not report_data(model, other).in_training.any()


@pytest.mark.parametrize("chosen", [np.arange(6), np.arange(0, 60, 2)], ids=["few", "one class"])
def test_a_warning_for_training_rows_that_are_too_few_for_cross_validation(overfitted, tmp_path, chosen):
    model, frame = overfitted
    with pytest.warns(
        UserWarning, match=f"{len(chosen)} of {len(chosen)} rows equal rows that the model was fitted on"
    ):
        write_report(model, frame.iloc[chosen], tmp_path / "few.html")
    wanted = f"predicted by the model, which was fitted on samples equal to {len(chosen)} of them"
    assert wanted in (tmp_path / "few.html").read_text()


def test_a_model_without_a_record_of_its_rows(overfitted, tmp_path):
    """As made without `fit_table`."""
    model, frame = overfitted
    del (facts := dict(model.facts))["row_hashes"]
    with pytest.warns(UserWarning, match="The model does not record which rows"):
        write_report(replace(model, facts=facts), frame, tmp_path / "own.html")
    assert "which does not record whether it was fitted on them" in (tmp_path / "own.html").read_text()


def test_subsampling_keeps_every_class(monkeypatch):
    """Even a rare one."""
    monkeypatch.setattr("annealed.app.report.points.MOST_ROWS", 30)
    frame = flowers()
    frame.loc[3:5, "species"] = "rare"
    model = fit_table(label_table(frame, "species"), "logistic")
    data = report_data(model, frame)
    assert data.posterior.shape[2] == 4 and data.is_held_out.all()
    assert 25 <= len(data.labels) <= 34


def categorical(rows):
    return pandas.DataFrame(rows * 10, columns=["paid", "colour", "out"])


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(
    "rows",
    [
        [("yes", "red", "stay"), ("no", "red", "stay"), ("yes", "red", "leave"), ("no", "red", "leave")],
        [("yes", "red", "stay"), ("yes", "blue", "leave"), ("no", "red", "wait")],
    ],
    ids=["equal classes", "one distinct row for each of three classes"],
)
def test_tables_with_few_distinct_rows(name, rows):
    frame = categorical(rows)
    model = fit_table(label_table(frame, "out"), name)
    assert np.isfinite(report_data(model, frame).plane.points).all()
    new = pandas.DataFrame([("maybe", "green", "stay")] * 5, columns=frame.columns)
    plane = report_data(model, new).plane
    assert np.isfinite(plane.points).all() and np.isfinite(plane.confidence).all()


def test_directions_of_a_nonlinear_model_are_linear_discriminants():
    """Up to their signs."""
    frame = flowers()
    data = report_data(fit_table(label_table(frame, "species"), "potts"), frame)
    expected = LinearDiscriminantAnalysis().fit(frame.drop(columns="species"), frame["species"])
    expected = expected.transform(frame.drop(columns="species"))
    for axis in range(2):
        assert abs(np.corrcoef(expected[:, axis], data.plane.points[:, axis])[0, 1]) > 1 - 1e-8


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


def test_a_quadratic_family_has_no_figure_of_features(tmp_path):
    frame = flowers()
    table = label_table(frame, "species")
    steps = [("table", make_vectorizer(table.columns)), ("model", AnnealedClassifier(Quadratic()))]
    model = TableModel(Pipeline(steps).fit(table.conformed(), table.labels), table.columns, table.target, "quadratic")
    with pytest.warns(UserWarning, match="does not record which rows"):
        write_report(model, frame, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert 'id="plane"' in text and 'id="features"' not in text


@pytest.mark.parametrize("name", ["logistic", "lda", "kernel"])
def test_held_out_scores_agree_with_the_validation_scores(name):
    """Also for lda, whose posterior scale is far from one, and with a kernel that was chosen for the model."""
    frame = flowers()
    model = fit_table(label_table(frame, "species"), name)
    data = report_data(model, frame)
    assert abs(held_out_loss(data) + model.path.validation_score[model.path.best_index].mean()) < 0.003
    assert np.allclose(data.posterior.sum(axis=2), 1)


def held_out_loss(data):
    assert data.is_held_out.all()
    return -np.log(data.posterior[data.chosen, np.arange(len(data.labels)), data.labels]).mean()


def test_a_kernel_model_is_held_out_with_the_scales_that_it_has_learned(tmp_path):
    """Two rings, in two of four columns."""
    X, y = make_circles(250, noise=0.1, factor=0.4, random_state=0)
    noise = np.random.default_rng(0).normal(size=(250, 2))
    frame = pandas.DataFrame(np.hstack([X, noise]), columns=list("abcd")).assign(ring=y, town=["x", "y"] * 125)
    model = fit_table(label_table(frame, "ring"), "kernel")
    assert model.classifier.scale_[2:].min() > 3 * model.classifier.scale_[:2].max()
    data = report_data(model, frame)
    assert abs(held_out_loss(data) + model.path.validation_score[model.path.best_index].mean()) < 0.005
    texts = dict(card(model, data)["Scores at the chosen temperature"] + card(model, data)["Model"])
    assert "(the temperature and the kernel were chosen with all training samples)" in texts["samples"]
    assert f"gamma {model.classifier.gamma_:.3g}, 250 landmarks" in texts["chosen kernel"]


def test_one_feature_and_a_class_of_one_row(tmp_path):
    frame = flowers()[["petal length (cm)", "species"]]
    frame.loc[0, "species"] = "unique"
    model = fit_table(label_table(frame, "species"), "logistic")
    write_report(model, frame, tmp_path / "report.html")
    assert "149 samples" in (tmp_path / "report.html").read_text()


def test_classes_of_one_row_each(tmp_path):
    """Cross-validation is impossible, and the model predicts all rows."""
    frame = flowers().iloc[[0, 60, 120]]
    with pytest.warns(UserWarning, match="Every class has a single sample"):
        model = fit_table(label_table(frame, "species"), "logistic")
    with pytest.warns(UserWarning, match="3 of 3 rows equal rows that the model was fitted on, but they are too few"):
        write_report(model, frame, tmp_path / "report.html")
    wanted = "predicted by the model, which was fitted on samples equal to 3 of them"
    assert wanted in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda frame: frame.drop(columns="species"), "no column 'species', the target"),
        (lambda frame: frame.assign(species="tulip"), "must hold classes that the model was fitted on. Got 'tulip'"),
    ],
)
def test_tables_that_do_not_suit_the_model(tmp_path, change, sentence):
    frame = flowers()
    model = fit_table(label_table(frame, "species"), "logistic")
    with pytest.raises(InputError, match=sentence):
        write_report(model, change(frame), tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_weighted_rows(tmp_path):
    """Weights affect the fits of the folds and all scores, and rows of weight 0 are left out."""
    frame = flowers().assign(trust=np.arange(150) % 3)
    model = fit_table(label_table(frame, "species", "trust"), "logistic")
    data = report_data(model, frame)
    assert data.is_held_out.all()
    assert data.weights.tolist() == [1, 2] * 50
    losses = -np.log(data.posterior[data.chosen, np.arange(100), data.labels])
    path = model.path
    assert abs(np.average(losses, weights=data.weights) + path.validation_score[path.best_index].mean()) < 0.03
    write_report(model, frame, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    error = np.average(data.predicted[data.chosen] != data.labels, weights=data.weights)
    assert f"<dd>{error:.2%} (95 % interval" in page
    assert "100 samples weighted by &#x27;trust&#x27;, each predicted" in page
    assert '["0","49","0"]' in page  # the weights of class setosa
    with pytest.raises(InputError, match="no column 'trust', with which the model's samples were weighted. Add it; 1"):
        report_data(model, frame.drop(columns="trust"))


@pytest.mark.filterwarnings("ignore:Not converged")
def test_an_error_for_folds_that_cannot_be_fitted():
    """Without the row that outweighs all others of its class, the class has no weight."""
    frame = flowers().assign(trust=np.where(np.arange(150) % 50, 1, 1e20))
    with pytest.warns(UserWarning, match="Every class has a single sample of positive weight"):
        model = fit_table(label_table(frame, "species", "trust"), "logistic")
    message = "without some of them the model cannot be fitted: y must .* Give rows that it was not fitted on."
    with pytest.raises(InputError, match=message):
        report_data(model, frame)
    assert not report_data(model, frame.assign(**{HOSTILE_COLUMN: -1.0})).in_training.any()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0.0, "0"), (20000.0, "20000"), (12.0625, "12.0625"), (1 / 3, "0.333333"), (1.5e9, "1500000000"), (2e90, "2e+90")],
)
def test_sums_of_weights_are_short(count, text):
    from annealed.app.report.base import formatted

    assert formatted(count) == text


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e90])
def test_effective_sample_size_is_kishs(scale):
    from annealed.app.report.base import effective_sample_size

    assert effective_sample_size(scale * np.array([1.0, 1, 1])) == pytest.approx(3)
    assert effective_sample_size(scale * np.array([3.0, 1])) == pytest.approx(1.6)


@pytest.mark.parametrize(("n_correct", "n_samples"), [(0, 1), (1, 1), (3, 7), (40, 40), (999, 1000)])
def test_intervals_of_shares_are_wilsons(n_correct, n_samples):
    from annealed.app.report.base import share_interval

    expected = binomtest(n_correct, n_samples).proportion_ci(method="wilson")
    assert np.allclose(share_interval(n_correct / n_samples, n_samples), expected, atol=1e-12)


def test_shortened_names_remain_distinct():
    from annealed.app.report.figures import _short

    assert _short(["a" * 30, "b"]) == ["a" * 17 + "…", "b"]
    same = _short([f"{'a' * 30} = {colour}" for colour in ("red", "blue")])
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
    messages, requests, dialogs = [], [], []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(report.as_uri())
    page.wait_for_selector("#features .bars")

    def displayed():
        data = {"confusion": "data[0].text", "plane": "data[0].z", "reliability": "data[1].y"}
        drawn = [page.eval_on_selector(f"#{name}", f"plot => JSON.stringify(plot.{key})") for name, key in data.items()]
        return [page.inner_text("#temperature"), page.inner_text("#error"), *drawn]

    before = displayed()
    assert "chosen by validation" in page.inner_text(".numbers")
    page.focus("#slider")
    for _ in range(9):
        page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(300)
    after = displayed()
    assert [old != new for old, new in zip(before, after, strict=True)] == [True] * 5
    page.select_option("#class", "1")
    assert HOSTILE in page.inner_text("#plane")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    sizes = "[...document.querySelectorAll('.js-plotly-plot')].map(plot => plot._fullLayout.width - plot.clientWidth)"
    assert max(page.evaluate(sizes)) <= 1
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(244, 246, 248)" if scheme == "light" else "rgb(20, 24, 28)"
    )
    assert (messages, dialogs, requests) == ([], [], [report.as_uri()])
    page.screenshot(path=tmp_path / "report.png", full_page=True)
    page.close()
