#!/bin/bash
# Boots the guest, runs one scenario in it as a unit of systemd, prints what the scenario says and exits with its code.
#
#     tests/guest/run.sh SCENARIO [bookworm|trixie]
#
# SCENARIO is a file in tests/guest/scenarios/ without `.sh`. GUEST_BINARIES (target/debug) says where the programs are,
# GUEST_LIMIT (300) how many seconds it may take. 124: the limit passed; 125: the guest never said how it ended.
# The disk of target/guest is not written to. What the guest's kernel and systemd said is kept in target/guest/console.log.
set -euo pipefail

here=$(cd "$(dirname "$0")/../.." && pwd)
scenario=${1:-}
release=${2:-bookworm}
image=$here/target/guest/$release
binaries=${GUEST_BINARIES:-$here/target/debug}
limit=${GUEST_LIMIT:-300}
console=$here/target/guest/console.log

fail() { echo "run: $*" >&2; exit 2; }

[ -f "$here/tests/guest/scenarios/$scenario.sh" ] || fail "there is no scenario \`$scenario\`: choose one of" \
    "$(cd "$here/tests/guest/scenarios" && printf '%s ' *.sh | sed 's/\.sh//g')"
command -v qemu-system-x86_64 >/dev/null ||
    fail "install what is missing: apt-get install --no-install-recommends qemu-system-x86"
for name in sluice sluice-agent sluice-coordinator sluice-supervisor sluice-helper; do
    [ -x "$binaries/$name" ] || fail "$binaries/$name is not there: cargo build --workspace, or set GUEST_BINARIES"
done
"$here/tests/guest/image.sh" "$release"

# One guest at a time: an emulated processor takes a whole one of this machine.
exec 9>"$here/target/guest/lock"
flock --nonblock 9 || fail "another guest runs here already"

work=$(mktemp -d "$here/target/guest/run.XXXXXX")
qemu=
leave() {
    [ -z "$qemu" ] || kill "$qemu" 2>/dev/null || true
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT TERM HUP

# The second disk of `packages`: two builds of the packages, of which the second is newer.
build_packages() {
    mkdir -p "$work/bin"
    for name in sluice sluice-agent sluice-coordinator sluice-supervisor sluice-helper; do strip -o "$work/bin/$name" "$binaries/$name"; done
    for revision in 1 2; do
        SLUICE_BINARIES=$work/bin SLUICE_REVISION=$revision \
            "$here/packaging/build-deb.sh" "$work/payload/deb/$revision" >/dev/null
    done
}

# The second disk of others: what a package would install.
install_tree() {
    local root=$work/payload/root
    mkdir -p "$root"/usr/bin "$root"/usr/lib/{systemd/system,sysusers.d,tmpfiles.d} "$root"/etc/sluice
    for name in sluice sluice-agent sluice-coordinator sluice-supervisor sluice-helper; do
        strip -o "$root/usr/bin/$name" "$binaries/$name"
        chmod 755 "$root/usr/bin/$name"
    done
    cp "$here"/packaging/systemd/* "$root/usr/lib/systemd/system/"
    [ "$release" = bookworm ] || cp -r "$here"/packaging/systemd-254/* "$root/usr/lib/systemd/system/"
    cp "$here/packaging/sysusers.d/"* "$root/usr/lib/sysusers.d/"
    cp "$here/packaging/tmpfiles.d/"* "$root/usr/lib/tmpfiles.d/"
    # Stand-ins for NVIDIA's libraries, for the scenario that needs them.
    mkdir "$work/payload/standin"
    for name in "$binaries"/libsluice_{nvml,cuda}_standin.so; do
        [ ! -e "$name" ] || strip -o "$work/payload/standin/${name##*/}" "$name"
    done
    cp "$here"/tests/nvml/hosts/l40sx4.json "$work/payload/standin/"
}

# Disks of file systems that keep projects to their limits. Holes take no room here.
make_disks() {
    command -v mkfs.xfs >/dev/null || fail "install what is missing: apt-get install --no-install-recommends xfsprogs"
    truncate -s 1G "$work"/{ext4,xfs}.img
    mkfs.ext4 -q -O quota,project -N 200000 "$work/ext4.img"
    mkfs.xfs -q "$work/xfs.img"
    for name in ext4 xfs; do disks+=(-drive "file=$work/$name.img,format=raw,if=virtio"); done
}

# The blocks of pages that belong to this scenario: their fences say `guest: SCENARIO NAME`.
take_blocks() {
    mkdir "$work/payload/blocks"
    awk -v scenario="$scenario" -v folder="$work/payload/blocks/" '
        /^ *```/ { indent = index($0, "`"); file = $2 == "guest:" && $3 == scenario ? folder $4 : ""; next }
        file != "" { print substr($0, indent) > file }
    ' "$here"/docs/*.md
}

seal() {
    take_blocks
    cp "$here"/tests/guest/{start,cluster.sh} "$here/tests/guest/scenarios/$scenario.sh" "$work/payload/"
    ln -s "$scenario.sh" "$work/payload/scenario"
    truncate -s 256M "$work/payload.img"
    mkfs.ext4 -q -O ^has_journal -E root_owner=0:0 -d "$work/payload" "$work/payload.img"
}

# Two processors that one thread plays in turn. The first serial line is the console, the second carries what the
# scenario says. Whichever of this script, `timeout` and qemu dies, those below it die as well. QEMU 7.2 spoils the flags of
# cmpxchg16b once in a while, which Linux 6.12 does not survive: so the processor has none, and the kernel does without.
# Where the disk of this machine is full the guest is told: otherwise it would be halted without a word.
# On a busy machine its timer does not tick while the kernel counts ticks to see whether it is there: it is.
boot() {
    : >"$work/said"
    setpriv --pdeathsig TERM timeout --kill-after 5 "$limit" \
        setpriv --pdeathsig KILL qemu-system-x86_64 \
        -accel tcg,thread=single -cpu qemu64,-cx16 -smp 2 -m 1536 -machine pc -nodefaults -display none \
        -kernel "$image/vmlinuz" -initrd "$image/initrd.img" \
        -append "root=/dev/vda rw console=ttyS0 quiet panic=-1 no_timer_check systemd.journald.forward_to_console=no ${GUEST_APPEND:-}" \
        -drive "file=$image/root.img,format=raw,if=virtio,snapshot=on,werror=report" \
        -drive "file=$work/payload.img,format=raw,if=virtio,readonly=on" \
        "${disks[@]}" -device virtio-rng-pci \
        -serial "file:$console" -serial "file:$work/said" 9>&- &
    qemu=$!
    tail --pid "$qemu" --sleep-interval 0.3 -f "$work/said" | grep --line-buffered -v '^exit: ' || true
    local code=0
    wait "$qemu" || code=$?
    qemu=
    [ "$code" != 124 ] || { echo "run: the limit of ${limit}s has passed; see $console" >&2; exit 124; }
}

disks=()
if [ "$scenario" = quotas ]; then make_disks; fi
if [ "$scenario" = packages ]; then build_packages; else install_tree; fi
seal
boot
! grep -aq 'Kernel panic' "$console" || { echo "run: the guest's kernel has panicked; see $console" >&2; exit 125; }
code=$(sed -n 's/^exit: \([0-9]*\)\r*$/\1/p' "$work/said" | tail -n 1)
[ -n "$code" ] || { echo "run: the guest did not say how the scenario ended; see $console" >&2; exit 125; }
exit "$code"
