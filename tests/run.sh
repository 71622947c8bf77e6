#!/usr/bin/env bash
# Installs what the checks need, runs all of them, and ends with one line that says how they went.
#
#   tests/run.sh
#
# Needs Rust (https://rustup.rs). On Debian and as root it installs the rest with apt-get; otherwise it prints the command
# that does. As another user than root it leaves out the tests that only root can run, and lists them.
# SLUICE_FUZZ_SECONDS (default 4) is the time that each fuzz target gets.
set -euo pipefail
cd "$(dirname "$0")/.."

# What a shell starts in the background ignores SIGINT, and so would every program that a test interrupts.
if [ -z "${SLUICE_SIGNALS_RESET:-}" ] && env --default-signal=INT true 2>/dev/null; then
    SLUICE_SIGNALS_RESET=yes exec env --default-signal=INT --default-signal=QUIT "$0" "$@"
fi

# ---- What the checks need: a command that shows that it is there, and the Debian packages that bring it. -----------------
missing=()
need() {
    local packages=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=($packages)
}
need "gcc libc6-dev" sh -c 'echo "int main(void) { return 0; }" | cc -x c -o /dev/null -'
need git command -v git
need "python3 python3-venv" python3 -c 'import ensurepip'  # NVIDIA's binding and clients of the API check ours
need curl command -v curl                                  # examples of the docs
need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
need openssl command -v openssl                            # a certificate of the gateway
need iproute2 command -v ip                                # network namespaces
need procps command -v ps
need tmux command -v tmux                                  # terminals of steps, by keys and screens
need vim-tiny sh -c 'command -v vim || command -v vim.tiny'
need bubblewrap command -v bwrap                           # steps in containers, over a root file system
need busybox-static test -x /bin/busybox                   # of this
need util-linux command -v prlimit
need e2fsprogs command -v mkfs.ext4                        # a disk with quotas, where the kernel has them
need systemd command -v systemd-analyze                    # judges the units
need haproxy sh -c 'command -v haproxy || test -x /usr/sbin/haproxy'      # the gateway
need prometheus command -v promtool                        # judges /metrics
need "dpkg-dev debhelper" command -v dh                    # makes the packages
need build-essential sh -c 'dpkg -s build-essential | grep "^Status: .* installed"' # asked for by what makes them
need help2man command -v help2man
need fakeroot command -v fakeroot

if ! command -v cargo >/dev/null; then
    echo "tests/run.sh: cargo is not on the PATH: install Rust as https://rustup.rs says, then run this again" >&2
    exit 1
fi
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "tests/run.sh: installing ${missing[*]}"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    else
        echo "tests/run.sh: some programs are missing. Install them, then run this again (names are those of Debian):" >&2
        echo "    sudo apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
fi

# ---- The checks, each to its end, so that one run tells of all that is wrong. -------------------------------------------
log=$(mktemp)
SLUICE_LEFT_OUT=$(mktemp)
export SLUICE_LEFT_OUT
export SLUICE_FUZZ_SECONDS=${SLUICE_FUZZ_SECONDS:-4}
trap 'rm -f "$log" "$SLUICE_LEFT_OUT"' EXIT
failed=()
check() {
    local name=$1
    shift
    echo "== $name"
    "$@" || failed+=("$name")
}
dependencies() { python3 -B tests/dependencies/check.py && (cd tests/dependencies && python3 -B -m unittest -q); }
# One more at a time than there are processors: most tests of real processes wait for something.
tests() { RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) + 1))} cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log"; }

check format cargo fmt --all --check
check lint cargo clippy --workspace --all-targets --locked -- -D warnings
check documentation env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
check dependencies dependencies
check build cargo build --workspace --locked
check tests tests

# ---- The summary. -------------------------------------------------------------------------------------------------------
count() { awk -v word="$1" '/^test result:/ { for (i = 2; i <= NF; i++) if ($i ~ "^" word) sum += $(i - 1) } END { print sum + 0 }' "$log"; }
if [ -s "$SLUICE_LEFT_OUT" ]; then
    echo "== left out"
    sort -u "$SLUICE_LEFT_OUT"
fi
outcome=passed
[ ${#failed[@]} = 0 ] || outcome="FAILED (${failed[*]})"
echo "tests/run.sh: $outcome: $(count passed) tests passed, $(count failed) failed, $(sort -u "$SLUICE_LEFT_OUT" | wc -l) left out," \
    "in $((SECONDS / 60)) min $((SECONDS % 60)) s"
[ ${#failed[@]} = 0 ]
