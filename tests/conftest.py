"""scikit-learn lets arrays of other libraries in only where SciPy does, which is asked when SciPy is first imported."""

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")
