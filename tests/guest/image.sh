#!/bin/bash
# Builds the disk from which the guest boots: a small Debian with systemd and the kernel that Debian makes for clouds.
# Once for each release of Debian; tests/guest/run.sh boots it and never writes to it.
#
#     tests/guest/image.sh [bookworm|trixie]
#
# Leaves target/guest/RELEASE/{root.img,vmlinuz,initrd.img}. Each stage leaves a sign when it is done, so that a build
# that was cut off is taken up where it stood. Remove target/guest/RELEASE to build anew.
set -euo pipefail

release=${1:-bookworm}
mirror=${GUEST_MIRROR:-http://deb.debian.org/debian}
here=$(cd "$(dirname "$0")/../.." && pwd)
home=$here/target/guest/$release
tree=$home/tree

say() { echo "image: $*" >&2; }
fail() { say "$*"; exit 1; }

case $release in
    bookworm | trixie) ;;
    *) fail "release \`$release\` is not known: choose bookworm (systemd 252) or trixie (systemd 257)" ;;
esac

check_tools() {
    local missing=()
    command -v debootstrap >/dev/null || missing+=(debootstrap)
    command -v mkfs.ext4 >/dev/null || missing+=(e2fsprogs)
    [ ${#missing[@]} = 0 ] || fail "install what is missing: apt-get install --no-install-recommends ${missing[*]}"
    [ "$(id -u)" = 0 ] || fail "run it as root: debootstrap makes device nodes and works in a chroot"
}

# stage NAME: runs the function NAME unless it has been done.
stage() {
    [ -e "$home/done.$1" ] && return
    say "$1 ($release)"
    "$1" >>"$home/build.log" 2>&1 || fail "$1 failed; the end of $home/build.log:
$(tail -n 20 "$home/build.log")"
    touch "$home/done.$1"
}

# Only what runs at every boot; debootstrap is not resumable, so it starts from nothing.
base() {
    rm -rf "$tree"
    debootstrap --variant=minbase --include=systemd-sysv,udev,kmod,procps,iproute2,jq "$release" "$tree" "$mirror"
}

# The initial RAM disk holds the two modules that lead to the root file system, and no more: it is unpacked by an
# emulated processor.
kernel() {
    echo 'force-unsafe-io' >"$tree/etc/dpkg/dpkg.cfg.d/guest"
    mkdir -p "$tree/etc/initramfs-tools"
    in_tree apt-get install -y --no-install-recommends initramfs-tools
    sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=gzip/' "$tree/etc/initramfs-tools/initramfs.conf"
    printf '%s\n' virtio_pci virtio_blk ext4 >"$tree/etc/initramfs-tools/modules"
    in_tree apt-get install -y --no-install-recommends linux-image-cloud-amd64
    cp "$tree"/boot/vmlinuz-* "$home/vmlinuz"
    cp "$tree"/boot/initrd.img-* "$home/initrd.img"
}

# Nothing that asks, waits for a network or wakes up by a timer. The one unit of ours runs what the second disk holds.
settings() {
    echo guest >"$tree/etc/hostname"
    echo '127.0.0.1 localhost guest' >"$tree/etc/hosts"
    echo '/dev/vda / ext4 defaults 0 0' >"$tree/etc/fstab"
    rm -rf "$tree"/var/cache/apt/* "$tree"/var/lib/apt/lists/* "$tree"/usr/share/{doc,man,locale}
    cp "$here/tests/guest/scenario.service" "$tree/etc/systemd/system/"
    in_tree systemctl set-default multi-user.target
    in_tree systemctl enable scenario.service
    in_tree systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer \
        systemd-tmpfiles-clean.timer getty@tty1.service serial-getty@ttyS0.service systemd-networkd-wait-online.service
}

disk() {
    rm -f "$home/root.img"
    truncate -s 3G "$home/root.img"
    mkfs.ext4 -q -d "$tree" -L root "$home/root.img"
    rm -rf "$tree"
}

in_tree() {
    DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$tree" "$@"
}

check_tools
mkdir -p "$home"
for name in base kernel settings disk; do stage "$name"; done
say "ready: $home/root.img"
