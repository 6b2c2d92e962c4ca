"""The suites of `ports.Store`, by capability. Subclass each and bring the fixtures.

`store` gives an empty store and closes it. `reopen` opens one more handle on the same data, as a
second process would; `stored_bytes` gives every byte the store keeps. Where one of these two is
not brought, the tests that need it are skipped.
"""

from __future__ import annotations

from scrubjay.testing.conformance._base import StoreSuite
from scrubjay.testing.conformance._erasing import StoreErase
from scrubjay.testing.conformance._keeping import StoreBackup, StoreImport, StoreUpkeep
from scrubjay.testing.conformance._reading import StoreCriteria, StoreScope, StoreSnapshot
from scrubjay.testing.conformance._work import StoreJobs, StoreModels, StoreSegments
from scrubjay.testing.conformance._writing import (
    StoreDedup,
    StoreJournal,
    StoreRequests,
    StoreVersions,
)

__all__ = [
    "StoreBackup", "StoreCriteria", "StoreDedup", "StoreErase", "StoreImport", "StoreJobs",
    "StoreJournal", "StoreModels", "StoreRequests", "StoreScope", "StoreSegments",
    "StoreSnapshot", "StoreSuite", "StoreUpkeep", "StoreVersions",
]  # fmt: skip
