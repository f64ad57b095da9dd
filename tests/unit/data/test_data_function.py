"""module:function: what it returns, and everything that a user's function can do instead."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sources import identity, load_samples, open_samples
from wording import fails

from edgeconv.data import LabelUse
from edgeconv.data.kinds import function
from edgeconv.types import Allowance, TensorSpec
from edgeconv.types.errors import InputRefused, UsageError, WorkerTimedOut

X = TensorSpec(name="x", shape=(-1, 2), dtype="float32")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that is called mydata, in the current directory."""
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "mydata.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write


def returning(expression: str) -> str:
    return f"import numpy as np\ndef load():\n    return {expression}\n"


def read(place: str = "mydata:load", wanted: frozenset[str] | None = None) -> Any:
    return function.read(place, {}, wanted)


def test_a_dictionary_gives_arrays_by_name_and_a_tuple_the_labels_too(module):
    module(returning("{'x': np.float32([[1, 2], [3, 4]]), 'y': np.arange(2)}, [1, 0]"))
    arrays = read()
    assert arrays.by_name["x"].tolist() == [[1, 2], [3, 4]]
    assert arrays.by_name["x"].dtype == np.float32
    assert arrays.by_name["y"].tolist() == [0, 1]
    assert arrays.labels.tolist() == [1, 0]
    assert list(read(wanted=frozenset({"y"})).by_name) == ["y"]


def test_labels_may_be_a_dictionary_by_output(module):
    module(returning("{'x': np.ones((2, 2), np.float32)}, {'a': [1, 0], 'b': [[.5], [.25]]}"))
    use = LabelUse(needs="numbers", outputs=("a", "b"))
    labels = open_samples("mydata:load", (X,), allow_code=True, labels=use).labels
    assert labels["b"].tolist() == [[0.5], [0.25]]
    module(returning("np.ones((2, 2), np.float32), {'a': [1, 0]}"))
    named = open_samples("mydata:load", (X,), allow_code=True, labels=use).labels
    assert named["a"].tolist() == [1, 0]
    module(returning("{'x': np.ones((2, 2), np.float32), 'a': [1, 0]}, {'a': [1, 0]}"))
    with fails(InputRefused):
        open_samples("mydata:load", (X,), allow_code=True, labels=use)


def test_one_array_goes_to_the_only_input(module):
    module(returning("np.ones((3, 2), np.float32)"))
    samples = load_samples("mydata:load", (X,), allow_code=True)
    assert samples.arrays["x"].tolist() == [[1, 1]] * 3
    assert samples.labels is None
    with fails(UsageError):
        load_samples("mydata:load?x=other", (X,), allow_code=True)


def test_arrays_are_renamed_like_those_of_a_file(module):
    module(returning("{'x_test': np.ones((3, 2), np.float32), 'x_train': np.ones(9)}, [0, 1, 2]"))
    samples = load_samples("mydata:load?x=x_test", (X,), allow_code=True)
    assert samples.count == 3
    with fails(UsageError):
        load_samples("mydata:load?x=x_tst", (X,), allow_code=True)
    with fails(UsageError):
        load_samples("mydata:load?labels=y", (X,), allow_code=True)


def test_modules_of_packages_and_methods_of_classes_are_found(module):
    module("", "package/__init__.py")
    module(
        """
        import numpy as np
        class Data:
            @staticmethod
            def load(): return np.zeros(2)
        """,
        "package/data.py",
    )
    assert read("package.data:Data.load").by_name[""].shape == (2,)


def test_it_runs_in_the_directory_of_the_caller_and_not_in_its_process(module):
    Path("values.txt").write_text("1 2 3", encoding="ascii")
    module("import os, numpy as np\ndef load(): return np.loadtxt('values.txt'), os.getpid() + 0")
    arrays = read()
    assert arrays.by_name[""].tolist() == [1, 2, 3]
    import os

    assert int(arrays.labels) != os.getpid()


def test_it_is_refused_unless_code_is_allowed_and_then_does_not_run(module):
    module("open('ran', 'w').close()\ndef load(): pass")
    with fails(UsageError):
        open_samples("mydata:load", (X,))
    with fails(UsageError):
        identity("mydata:load")
    assert not Path("ran").exists()


def test_the_identity_is_of_what_it_returns(module):
    module(returning("np.ones(3)"))
    first = identity("mydata:load", allow_code=True)
    module("import numpy\ndef load():\n    print('other code')\n    return numpy.ones(3)\n")
    assert identity("mydata:load", allow_code=True) == first
    module(returning("np.ones(4)"))
    assert identity("mydata:load", allow_code=True) != first
    module(returning("{'x': np.ones(3)}"))
    assert identity("mydata:load", allow_code=True) != first


def test_reading_after_the_identity_does_not_run_it_again_but_reading_later_does(module):
    module(
        """
        import numpy as np
        def load():
            with open('runs', 'a') as file: file.write('x')
            return np.full(2, len(open('runs').read()))
        """
    )
    identity("mydata:load", allow_code=True)
    assert read().by_name[""].tolist() == [1, 1]
    assert read().by_name[""].tolist() == [2, 2]
    identity("mydata:load", allow_code=True)
    assert read().by_name[""].tolist() == [3, 3]


def test_nothing_is_left_in_the_temporary_directory(module, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    module(returning("np.ones(3)"))
    read()
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    "expression",
    [
        "None",
        "{'x': None}",
        "(i for i in range(3))",
        "np.array([{}])",
        "['a', None]",
        "[[1, 2], [3]]",
        "object()",
        "{}",
        "{0: np.ones(2)}",
        "(np.ones(2), np.ones(2), np.ones(2))",
        # Too much.
        "np.broadcast_to(np.float32(0), (1 << 33, 3))",
    ],
)
def test_what_is_no_array_of_numbers_is_refused(expression, module):
    module(returning(expression))
    with fails(InputRefused):
        read()


def test_an_exception_is_told_with_the_line_that_is_the_users_own(module):
    module(
        """
        import json
        def load():
            return json.loads('{')
        """
    )
    with fails(InputRefused):
        read()


@pytest.mark.parametrize(
    "text",
    [
        "def load():\n    raise KeyboardInterrupt",
        "class Own(BaseException): pass\ndef load(): raise Own(3)",
        "def load(a): pass",
        "def load(): exit(3)",
        "import sys\ndef load(): sys.exit('no data')",
        "def load(): return input()",
        "def load(): return load()",
        "class A:\n  def __array__(self, *a, **k): raise KeyError(1)\ndef load(): return A()",
        # Its module cannot be imported.
        "1 / 0",
        "def load(:",
        "import not_there",
        "exit()",
        # Its process ends.
        "import os\ndef load(): os.abort()",
        "import os\ndef load(): os._exit(7)",
        "import os\ndef load(): os._exit(0)",
        "import os, signal\ndef load(): os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_whatever_it_does_instead_is_refused(text, module):
    module(text)
    with fails(InputRefused):
        read()


def test_printing_without_end_ends_with_the_time_and_fills_no_disk(module, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    module(
        """
        import os, sys
        def load():
            while True:
                sys.stdout.write('all work and no play\\n' * 1000)
                with open('blocks', 'w') as file: file.write(str(os.fstat(1).st_blocks))
        """
    )
    with pytest.raises(WorkerTimedOut) as error:
        function.identity("mydata:load", {}, Allowance(timeout_s=4))
    # The last line is cut anywhere.
    assert "\n  | all work and no play\n" in error.value.message
    assert int(Path("blocks").read_text(encoding="ascii") or 0) * 512 < 1 << 30


def test_a_missing_module_or_function_gets_a_suggestion(module):
    module("import numpy as np\nsize = 3\ndef load_test(): pass\ndef _hidden(): pass")
    with fails(InputRefused):
        read("mydat:load")
    with fails(InputRefused):
        read("mydata.more:load")
    with fails(UsageError):
        read()
    with fails(UsageError):
        read("mydata:size")
    with fails(UsageError):
        read("mydata")
