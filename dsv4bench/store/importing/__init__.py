"""Other tools' result files as `Arm`s, so that `compare` need not know who measured.

    from dsv4bench.store.importing import Imported, read_imported, read_results
    arms = read_results([Path("vllm_c8.json"), Path("vllm_c16.json")])

One module a tool says what its file holds in our words; `arms` joins the files of one configuration.
"""

from dsv4bench.store.importing.arms import Imported, read_imported, read_results
from dsv4bench.store.importing.level import ImportedFile, Level
from dsv4bench.store.importing.recognise import read_file

__all__ = ["Imported", "ImportedFile", "Level", "read_file", "read_imported", "read_results"]
