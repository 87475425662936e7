#!/bin/sh
# Compiles the library with the lowest and the highest version of rusqlite that its Cargo.toml allows, in a copy of the
# workspace: Cargo.lock stays as it is.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
range=$(sed -n 's/^rusqlite = .*version = ">=\([0-9.]*\), <\([0-9.]*\)".*/\1 \2/p' "$root/crates/duroxide/Cargo.toml")
lowest=${range% *}
[ -n "$lowest" ] || { echo "no range of rusqlite in crates/duroxide/Cargo.toml" >&2; exit 1; }

CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}/rusqlite-range"
export CARGO_TARGET_DIR
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
(cd "$root" && tar -cf - --exclude ./target --exclude ./.git --exclude node_modules .) | tar -xf - -C "$copy"
cd "$copy"

check() {
    cargo update --quiet --package rusqlite "$@"
    cargo tree --quiet --package duroxide --depth 2 --invert libsqlite3-sys
    cargo check --quiet --package duroxide --features test
    # A library that compiles may still fail on what SQLite itself does not know: open a store and use it.
    cargo test --quiet --package duroxide --features test --test sqlite_readable
}

check --precise "$lowest.0"
check
