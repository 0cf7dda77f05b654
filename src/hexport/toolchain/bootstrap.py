"""What another Python runs first: it gets the package hexport from its folder, and nothing beside it.

hexport's folder is mostly in a site-packages. On the other Python's path that would bring along packages
which were built for this one; so the package alone is loaded, by its place. Run as a script:
bootstrap.py FOLDER MODULE. Written for any Python 3, so that one which is too old can say so.
"""

import os
import sys


def main() -> None:
    """Load the package, then run the module in its place."""
    folder, module = sys.argv[1:3]
    if sys.version_info < (3, 11):  # noqa: UP036 - it is not this package's Python that runs this
        sys.exit("hexport's workers need Python 3.11 or newer; this is " + sys.version.split()[0])
    # Python puts the folder of a script before everything, and here are names like "protocol".
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - nothing else is loaded yet
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != here]  # noqa: PTH100
    import importlib.util
    import runpy

    place = os.path.join(folder, "__init__.py")  # noqa: PTH118
    spec = importlib.util.spec_from_file_location("hexport", place, submodule_search_locations=[folder])
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    # In the place of any hexport that is installed there, which may be of another version.
    sys.modules["hexport"] = package
    spec.loader.exec_module(package)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
