"""Products of pairs of features, against loops over samples, features and pixels."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.svm import SVC

from annealed import SecondOrderFeatures


def some_rows(n_columns=5):
    """Rows of small numbers, half of them zero; the last row is empty."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(7, n_columns)) * (generator.uniform(size=(7, n_columns)) < 0.5)
    rows[-1] = 0
    return rows


def all_products(X):
    """`x_i x_j, i >= j`, by a double loop."""
    return np.array([[row[i] * row[j] for i in range(len(row)) for j in range(i + 1)] for row in X])


def neighbours(height, width, radius):
    """Pairs (i, j), i >= j, of pixels at most `radius` apart, from all pairs."""
    places = [(down, across) for down in range(height) for across in range(width)]
    return [
        (i, j)
        for i, (down, across) in enumerate(places)
        for j, (other_down, other_across) in enumerate(places[: i + 1])
        if (down - other_down) ** 2 + (across - other_across) ** 2 <= radius**2 + 1e-9
    ]


def test_all_products_in_order():
    X = some_rows()
    np.testing.assert_array_equal(SecondOrderFeatures().fit_transform(X), all_products(X))


@pytest.mark.parametrize("order", ["C", "F"])
def test_products_are_contiguous_by_row(order):
    X = np.asarray(np.random.default_rng(0).normal(size=(7, 4)), order=order)
    assert SecondOrderFeatures().fit_transform(X).flags.c_contiguous


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
@pytest.mark.parametrize("neighborhood", [None, 1])
def test_sparse_formats_are_preserved_and_equal_dense(kind, neighborhood):
    X = some_rows(n_columns=9)
    dense = SecondOrderFeatures(neighborhood).fit_transform(X)
    products = SecondOrderFeatures(neighborhood).fit_transform(kind(X))
    assert type(products) is kind
    assert products.nnz == np.count_nonzero(dense)
    assert products.has_canonical_format
    np.testing.assert_array_equal(products.toarray(), dense)


@pytest.mark.parametrize(
    ("kind", "made"), [(sparse.csc_matrix, sparse.csr_matrix), (sparse.coo_array, sparse.csr_array)]
)
def test_other_sparse_formats_become_csr(kind, made):
    X = some_rows()
    products = SecondOrderFeatures().fit_transform(kind(X))
    assert type(products) is made
    np.testing.assert_array_equal(products.toarray(), all_products(X))


def test_sparse_indices_out_of_order():
    X = sparse.csr_array((np.array([3.0, 2.0]), np.array([1, 0]), np.array([0, 2])), shape=(1, 2))
    np.testing.assert_array_equal(SecondOrderFeatures().fit_transform(X).toarray(), [[4, 6, 9]])
    assert list(X.indices) == [1, 0]


def test_sparse_entries_stored_twice_are_added_first():
    X = sparse.csr_array((np.array([1.0, 2.0, 3.0]), np.array([0, 0, 1]), np.array([0, 3])), shape=(1, 2))
    np.testing.assert_array_equal(SecondOrderFeatures().fit_transform(X).toarray(), [[9, 9, 9]])


def test_no_stored_entry_at_all():
    products = SecondOrderFeatures().fit_transform(sparse.csr_array((3, 4)))
    assert products.shape == (3, 10)
    assert products.nnz == 0


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_preserved(store, dtype):
    assert SecondOrderFeatures().fit_transform(store(some_rows().astype(dtype))).dtype == dtype


@pytest.mark.parametrize(("n_columns", "n_products"), [(180, 16290), (17, 153), (16, 136)])
@pytest.mark.parametrize("store", [np.asarray, sparse.csr_matrix])
def test_numbers_of_products_in_the_paper(n_columns, n_products, store):
    X = store(np.eye(3, n_columns))
    assert SecondOrderFeatures().fit_transform(X).shape == (3, n_products)


@pytest.mark.parametrize("radius", [0, 1, np.sqrt(2), 1.9, 2, np.sqrt(5), 100])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (1, 6)])
def test_neighbourhood_on_an_image(radius, shape):
    image = np.random.default_rng(1).normal(size=(2, shape[0] * shape[1]))
    model = SecondOrderFeatures(radius, image_shape=shape).fit(image)
    pairs = neighbours(*shape, radius)
    assert [tuple(pair) for pair in model.pairs_.tolist()] == pairs
    expected = np.array([[row[i] * row[j] for i, j in pairs] for row in image])
    np.testing.assert_array_equal(model.transform(image), expected)


def test_neighbours_on_a_large_image_are_found_without_making_all_pairs():
    image = np.ones((1, 64**2))
    tracemalloc.start()
    try:
        pairs = SecondOrderFeatures(1).fit(image).pairs_
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(pairs) == 64**2 + 2 * 63 * 64
    assert peak < 20 * pairs.nbytes


def test_image_is_square_by_default():
    image = np.ones((1, 16))
    by_default, given = SecondOrderFeatures(1).fit(image), SecondOrderFeatures(1, image_shape=(4, 4)).fit(image)
    np.testing.assert_array_equal(by_default.pairs_, given.pairs_)
    assert len(by_default.pairs_) == 16 + 2 * 3 * 4


def test_neighbourhood_zero_gives_squares_and_a_large_one_all_products():
    X = some_rows(n_columns=9)
    np.testing.assert_array_equal(SecondOrderFeatures(0).fit_transform(X), X**2)
    np.testing.assert_array_equal(SecondOrderFeatures(np.inf).fit_transform(X), all_products(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"neighborhood": 1}, r"as many pixels as X has features, 10. Got \(3, 3\)"),
        ({"neighborhood": 1, "image_shape": (2, 4)}, r"as many pixels as X has features, 10. Got \(2, 4\)"),
        ({"neighborhood": 1, "image_shape": 10}, "image_shape must be None or two positive integers, .* Got 10"),
        ({"neighborhood": 1, "image_shape": (-2, -5)}, r"two positive integers, .* Got \(-2, -5\)"),
        ({"neighborhood": 1, "image_shape": (2.0, 5.0)}, r"two positive integers, .* Got \(2.0, 5.0\)"),
        ({"neighborhood": 1, "image_shape": (1, 2, 5)}, r"two positive integers, .* Got \(1, 2, 5\)"),
        ({"neighborhood": 1, "image_shape": ()}, r"two positive integers, .* Got \(\)"),
        ({"neighborhood": -1, "image_shape": (2, 5)}, "neighborhood must be None or a number of at least 0. Got -1"),
        ({"neighborhood": "near", "image_shape": (2, 5)}, "neighborhood must be None or a number .* Got 'near'"),
        ({"neighborhood": np.nan, "image_shape": (2, 5)}, "neighborhood must be None or a number .* Got nan"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        SecondOrderFeatures(**parameters).fit(np.ones((2, 10)))


def test_names():
    model = SecondOrderFeatures().fit(np.ones((1, 3)))
    assert list(model.get_feature_names_out()) == ["x0^2", "x0 x1", "x1^2", "x0 x2", "x1 x2", "x2^2"]
    assert list(model.get_feature_names_out(["a", "b", "c"])) == ["a^2", "a b", "b^2", "a c", "b c", "c^2"]


def test_names_of_neighbours():
    model = SecondOrderFeatures(1).fit(np.ones((1, 4)))
    assert list(model.get_feature_names_out()) == ["x0^2", "x0 x1", "x1^2", "x0 x2", "x2^2", "x1 x3", "x2 x3", "x3^2"]


def test_output_as_a_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [2.0], "b": [3.0]})
    products = SecondOrderFeatures().set_output(transform="pandas").fit_transform(frame)
    assert products.to_dict("records") == [{"a^2": 4.0, "a b": 6.0, "b^2": 9.0}]


def test_before_fit_and_of_another_width():
    with pytest.raises(NotFittedError):
        SecondOrderFeatures().transform(some_rows())
    with pytest.raises(ValueError, match="6 features.*5 features"):
        SecondOrderFeatures().fit(some_rows()).transform(some_rows(6))


def test_sparse_products_have_indices_that_scikit_learn_takes():
    rows = sparse.csr_array(sparse.random(30, 20, density=0.2, random_state=0, format="csr"))
    products = SecondOrderFeatures().fit_transform(rows)
    assert products.indices.dtype == products.indptr.dtype == np.int32
    SVC(kernel="linear").fit(products, np.arange(30) % 2)


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
def test_products_that_overflow_are_refused(store):
    rows = np.array([[1e20, -1e20, 1e20]] * 2, dtype=np.float32)
    with pytest.raises(ValueError, match=r"infinite in float32. Its largest absolute value is 1e\+20"):
        SecondOrderFeatures().fit_transform(store(rows))
    assert SecondOrderFeatures().fit_transform(store(rows.astype(np.float64))).max() < 1.1e40
    largest = SecondOrderFeatures().fit_transform(np.full((2, 2), 1e154))  # products are finite, their sum is not
    assert np.isfinite(largest).all()
