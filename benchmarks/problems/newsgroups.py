"""20 Newsgroups: sparse tf-idf features of the whole vocabulary, canonical training part."""

from sklearn.datasets import fetch_20newsgroups
from sklearn.feature_extraction.text import TfidfVectorizer

from annealed.datasets import data_home
from benchmarks.contract import Table

TITLE = "20 Newsgroups tf-idf, whole vocabulary, sparse"
IS_QUICK = False


def tables():
    posts = fetch_20newsgroups(subset="train", data_home=data_home(), download_if_missing=False)
    yield Table("newsgroups", TfidfVectorizer().fit_transform(posts.data), posts.target)
