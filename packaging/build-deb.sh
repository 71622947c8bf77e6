#!/usr/bin/env bash
# Builds the Debian packages: packaging/build-deb.sh [OUT]. They come to OUT, target/deb by default.
# Needs Rust, a C compiler, dpkg-dev, debhelper and help2man. SLUICE_BINARIES=DIR packs the programs of DIR in place of a release
# build. SLUICE_REVISION=N makes packages that are newer than those of a smaller N, or of none, with the same version.
# SOURCE_DATE_EPOCH says the time of the files; the last commit's otherwise.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
out=$(mkdir -p "${1:-$repo/target/deb}" && cd "${1:-$repo/target/deb}" && pwd)

for tool in dpkg-buildpackage dh help2man; do
    command -v $tool >/dev/null || { echo "$tool is missing: apt-get install dpkg-dev debhelper help2man" >&2; exit 1; }
done

binaries=${SLUICE_BINARIES:-}
if [ -z "$binaries" ]; then
    cargo build --release --locked --manifest-path "$repo/Cargo.toml" \
        -p sluice-coordinator -p sluice-agent -p sluice-supervisor -p sluice-helper -p sluice
    binaries=${CARGO_TARGET_DIR:-$repo/target}/release
fi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$repo/Cargo.toml" | head -1)
: "${SOURCE_DATE_EPOCH:=$(git -C "$repo" log -1 --format=%ct 2>/dev/null || date +%s)}"
# The programs are built without what a debugger wants.
export SOURCE_DATE_EPOCH DEB_BUILD_OPTIONS=noautodbgsym

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
src=$work/sluice
mkdir "$src"
cp -r "$repo/packaging/debian" "$src/debian"
cat >"$src/debian/changelog" <<EOF
sluice ($version${SLUICE_REVISION:++$SLUICE_REVISION}) unstable; urgency=medium

  * Built from $(git -C "$repo" describe --always --dirty 2>/dev/null || echo "a source tree").

 -- Sluice maintainers <maintainers@sluice.invalid>  $(date -Rud "@$SOURCE_DATE_EPOCH")
EOF

# lay PACKAGE MODE FILE... DIR
lay() {
    local to=$src/root/$1 mode=$2
    shift 2
    install -D -m "$mode" -t "$to/${!#}" "${@:1:$#-1}"
}
# page PACKAGE PROGRAM WHAT-IT-DOES: its manual page, from what it says of itself
page() {
    local to=$src/root/$1/usr/share/man/man8
    mkdir -p "$to"
    help2man --no-info --section 8 --manual "Sluice" --source "Sluice $version" --name "$3" \
        --output "$to/$2.8" "$binaries/$2"
}
lay sluice-coordinator 755 "$binaries/sluice-coordinator" usr/bin
lay sluice-coordinator 644 "$repo/packaging/config/coordinator.toml" etc/sluice
# The package makes that token.
sed -i 's/^# api_token_file = /api_token_file = /' "$src/root/sluice-coordinator/etc/sluice/coordinator.toml"
page sluice-coordinator sluice-coordinator "decide for a cluster of GPU hosts what runs where"
lay sluice-agent 755 "$binaries"/sluice-{agent,supervisor,helper} usr/bin
lay sluice-agent 644 "$repo"/packaging/config/{agent,supervisor}.toml etc/sluice
# The package makes that user.
sed -i 's/^# agent_user = .*/agent_user = "sluice-agent"/' "$src/root/sluice-agent/etc/sluice/supervisor.toml"
page sluice-agent sluice-agent "speak for a GPU host in a Sluice cluster"
page sluice-agent sluice-supervisor "start, watch and stop the steps of a host"
page sluice-agent sluice-helper "do for the supervisor what needs no root"
lay sluice-gateway 644 "$repo/packaging/config/gateway.toml" etc/sluice
lay sluice 755 "$binaries/sluice" usr/bin
lay sluice 644 "$repo"/docs/*.md usr/share/doc/sluice
lay sluice 644 "$repo"/docs/reference/*.md usr/share/doc/sluice/reference
lay sluice 644 "$repo"/docs/dev/*.md usr/share/doc/sluice/dev
lay sluice 644 "$repo"/docs/pictures/*.svg usr/share/doc/sluice/pictures
mkdir -p "$src/root/sluice/usr/share/doc/sluice"
cp -r "$repo/packaging/examples" "$src/root/sluice/usr/share/doc/sluice/examples"
mkdir -p "$src/root/sluice/usr/share/man/man1"
"$binaries/sluice" man "$src/root/sluice/usr/share/man/man1" 2>/dev/null
for shell in bash:bash-completion/completions/sluice zsh:zsh/vendor-completions/_sluice \
    fish:fish/vendor_completions.d/sluice.fish; do
    to=$src/root/sluice/usr/share/${shell#*:}
    mkdir -p "$(dirname "$to")"
    "$binaries/sluice" completions "${shell%%:*}" >"$to"
done
# debhelper's own names: debian/PACKAGE[.NAME].KIND
for package in sluice-coordinator sluice-agent sluice-gateway; do
    cp "$repo/packaging/sysusers.d/$package.conf" "$src/debian/$package.sysusers"
    cp "$repo/packaging/tmpfiles.d/$package.conf" "$src/debian/$package.tmpfiles"
done
cp "$repo/packaging/systemd/sluice-coordinator.service" "$src/debian/sluice-coordinator.sluice-coordinator.service"
cp "$repo/packaging/systemd/sluice-gateway.service" "$src/debian/sluice-gateway.sluice-gateway.service"
lay sluice-agent 644 "$repo"/packaging/systemd-254/sluice-steps.service.d/*.conf lib/systemd/system/sluice-steps.service.d
for unit in agent.service supervisor.service steps.service keeper.service keeper.timer; do
    cp "$repo/packaging/systemd/sluice-$unit" "$src/debian/sluice-agent.sluice-$unit"
done

log=$work/log
if ! (cd "$src" && dpkg-buildpackage --build=binary --no-sign --no-pre-clean) >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
rm -f "$out"/*.deb
mv "$work"/*.deb "$out/"
ls -1 "$out"/*.deb
