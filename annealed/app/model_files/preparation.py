"""What the preparation of a table has learned: medians, missing cells, scales and categories.

`restored_preparation` makes the preparation anew. It fits it to a few made-up rows with the same missing cells and
categories, which determine its features, and then replaces what it learned from numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from annealed.app.model_files.content import Content, distinct_texts
from annealed.app.tables import MOST_CATEGORIES, TableColumns, make_vectorizer
from annealed.optional import require


def learned_preparation(vectorizer) -> dict[str, Any]:
    parts, learned = vectorizer.named_transformers_, {}
    if "numbers" in parts:
        fill, scale = parts["numbers"]["fill"], parts["numbers"]["scale"]
        learned["numbers"] = {
            "medians": fill.statistics_,
            "has_missing": np.isin(np.arange(len(fill.statistics_)), fill.indicator_.features_),
            "mean": scale.mean_,
            "variance": scale.var_,
            "scale": scale.scale_,
            "n_rows": int(scale.n_samples_seen_),
        }
    if "categories" in parts:
        encoder = parts["categories"]
        infrequent = getattr(encoder, "infrequent_categories_", [None] * len(encoder.categories_))
        learned["categories"] = {
            "known": [known.tolist() for known in encoder.categories_],
            "rare": [[] if rare is None else rare.tolist() for rare in infrequent],
        }
    return learned


def restored_preparation(content: Content, columns: TableColumns):
    vectorizer, names = make_vectorizer(columns), [*columns.numbers, *columns.dates]
    frame: dict[str, np.ndarray] = {}
    if names:
        numbers = content.part("numbers")
        has_missing = numbers.array("has_missing", (len(names),), "b")
        rows = np.zeros((MOST_CATEGORIES, len(names)))
        rows[0, has_missing] = np.nan
        frame |= dict(zip(names, rows.T, strict=True))
    if columns.categories:
        categories = content.part("categories")
        known, rare = (categories.values(name) for name in ("known", "rare"))
        vectorizer.set_params(categories__categories=[np.array(distinct_texts(texts), object) for texts in known])
        for name, texts, rare_texts in zip(columns.categories, known, rare, strict=True):
            frame[name] = _column_of(texts, rare_texts)
        categories.close()
    vectorizer.fit(require("pandas", extra="cli").DataFrame(frame))
    if columns.categories:
        for owner, prefix in ((vectorizer, "categories__"), (vectorizer.named_transformers_["categories"], "")):
            owner.set_params(**{f"{prefix}categories": "auto"})
    if names:
        _restore_numbers(numbers, vectorizer.named_transformers_["numbers"], len(names) + int(has_missing.sum()))
    content.close()
    return vectorizer


def _column_of(known, rare):
    """Cells with every category that is not rare; the encoder merges those that occur least often."""
    frequent = np.array(sorted(set(known).difference(rare)), object)
    n_frequent = len(known) if len(known) <= MOST_CATEGORIES else MOST_CATEGORIES - 1
    if len(frequent) != n_frequent or len(frequent) + len(rare) != len(known):
        raise ValueError(f"{n_frequent} of {len(known)} categories must be frequent. Got {len(frequent)}.")
    return np.resize(frequent, MOST_CATEGORIES)


def _restore_numbers(numbers, pipeline, n_scaled):
    pipeline["fill"].statistics_ = numbers.array("medians", pipeline["fill"].statistics_.shape)
    scale = pipeline["scale"]
    scale.mean_, scale.var_ = numbers.array("mean", (n_scaled,)), numbers.array("variance", (n_scaled,))
    scale.scale_ = numbers.array("scale", (n_scaled,), above=0.0)
    scale.n_samples_seen_ = float(numbers.whole("n_rows"))
    numbers.close()
