#!/bin/sh
# Builds the programs and starts a cluster on this machine: `sluice dev`, which gets the arguments of this script.
#
#   packaging/dev.sh [ARGUMENT...]
#
# Needs Rust (https://rustup.rs). Rust links by a C compiler: on Debian and as root one is installed if it is missing.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)

if ! command -v cargo >/dev/null; then
    echo "packaging/dev.sh: cargo is not on the PATH: install Rust as https://rustup.rs says, then run this again" >&2
    exit 1
fi
if ! echo 'int main(void) { return 0; }' | cc -x c -o /dev/null - 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "packaging/dev.sh: installing gcc libc6-dev"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null
    else
        echo "packaging/dev.sh: no C compiler works here. Install one, then run this again (on Debian: sudo apt-get install gcc libc6-dev)" >&2
        exit 1
    fi
fi
# Not optimised: that takes a quarter of the time, and the checks use the same build.
cargo build --locked --manifest-path "$root/Cargo.toml"
exec "${CARGO_TARGET_DIR:-$root/target}/debug/sluice" dev "$@"
