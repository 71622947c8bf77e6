# Storage on file systems that keep projects to their limits, ext4 and XFS: what the kernel refuses a step, what its end says,
# what a step cannot do about it, and what is left. The disks are made by run.sh.
. /scenario/cluster.sh

attempts=/var/lib/sluice/supervisor/attempts
MIB=$((1024 * 1024))

# project used|limit DIR ID, project of|give|leave PATH [ID]: bytes and files, or the project and the bit of a path.
cat >/usr/local/bin/project <<'PERL'
#!/usr/bin/perl
use strict;
use Fcntl;
my ($what, $path, $id) = @ARGV;
sysopen(my $file, $path, O_RDONLY | O_NONBLOCK) or die "$path: $!\n";
if ($what eq 'used' or $what eq 'limit') {
    my $quota = "\0" x 128;
    # quotactl_fd, Q_GETQUOTA of projects
    my $done = syscall(443, fileno($file), (0x800007 << 8) | 2, $id + 0, $quota);
    $done == 0 or $!{ENOENT} or die "quotactl: $!\n";
    my ($space_limit, undef, $space, $files_limit, undef, $files) = unpack('Q6', $quota);
    print $what eq 'used' ? "$space $files\n" : $space_limit * 1024 . " $files_limit\n";
    exit;
}
my $attributes = "\0" x 28;
ioctl($file, 0x801c581f, $attributes) or die "$path: $!\n";
my ($flags, $size, $extents, $project, $rest) = unpack('L4a12', $attributes);
if ($what eq 'of') { print "$project ", $flags & 0x200 ? 1 : 0, "\n"; exit }
if ($what eq 'leave') {
    # FS_IOC_GETFLAGS and FS_IOC_SETFLAGS, as chattr -P has it
    my $bits = "\0" x 8;
    ioctl($file, 0x80086601, $bits) or die "$path: $!\n";
    $bits = pack('Q', unpack('Q', $bits) & ~0x20000000);
    ioctl($file, 0x40086602, $bits) or die "$path: $!\n";
    exit;
}
$attributes = pack('L4a12', $flags | ($id ? 0x200 : 0), $size, $extents, $id, $rest);
ioctl($file, 0x401c5820, $attributes) or die "$path: $!\n";
PERL
chmod 755 /usr/local/bin/project

supervisor_log() { journalctl -o cat -u sluice-supervisor; }
project_of() { jq -e .storage.project "$(echo /var/lib/sluice/supervisor/spool/"$1".*.json)"; }
work_of() { echo "$attempts/$1".*/work; }
has_no_limit() { [ "$(project limit $attempts "$1")" = '0 0' ]; }
has_no_files() { [ "$(project used $attempts "$1" | cut -d' ' -f2)" = 0 ]; }
says_again() { [ "$(supervisor_log | grep -c "$1")" -gt "$2" ]; }

is_within() { [ "$1" -gt $((40 * MIB)) ] && [ "$1" -le $((49 * MIB)) ]; }
# over SCRIPT: a step that was granted 40 MiB and fails for it. What is counted may hold some blocks beside the 8 MiB
# more that its project may take: its output and the marks beside it.
over() {
    local step found used
    step=$(submit --storage 40MiB -- sh -c "$1")
    reaches "$step" failed
    found=$(field "$step" '.reason | "\(.code) \(.detail.used_bytes) \(.detail.used_files)"')
    echo "$found"
    read -r found used _ <<<"$found"
    [ "$found" = storage_exceeded ]
    is_within "$used"
}

is_held() {
    over 'df -h .; head -c 200M /dev/zero >x || exit 3'
    over 'exec 9>gone; rm gone; head -c 200M /dev/zero >&9; exec sleep 600'
    over 'head -c 200M /dev/zero >"$(dirname "$SLUICE_CHECKPOINT_FILE")/x" || exit 3'
    # A program that goes on is stopped by the next look.
    over 'head -c 200M /dev/zero >x; exec sleep 600'
}

# ext4 gives what is left and refuses the rest; XFS refuses the whole, and nothing is taken.
is_held_to_what_it_sets_aside() {
    local step
    if [ "$1" = ext4 ]; then
        over 'touch x; fallocate -n -l 200M x || exit 3'
    else
        step=$(submit --storage 40MiB -- sh -c 'touch x; fallocate -n -l 200M x || exit 3')
        reaches "$step" failed
        [ "$(field "$step" .reason.code)" = non_zero_exit ]
    fi
}
sets_aside() { is_held_to_what_it_sets_aside "$kind"; }

files_are_held() {
    local step
    step=$(submit --storage 60MiB -- sh -c 'seq 60000 | xargs touch || exit 3')
    reaches "$step" failed 240
    field "$step" .reason.message
    [ "$(field "$step" .reason.code)" = storage_exceeded ]
    [ "$(field "$step" .reason.detail.limit_files)" = 50000 ]
    [ "$(field "$step" .reason.detail.used_files)" -le 50064 ]
}

# Others write it, and must not wait for room in the project of the step.
output_is_outside() {
    local step used
    step=$(submit --storage 40MiB -- sh -c 'head -c 30M /dev/zero >x; head -c 5M /dev/zero; exec sleep 600')
    reaches "$step" running
    eventually 60 'its output' has_output "$step" $((5 * MIB))
    used=$(project used $attempts "$(project_of "$step")" | cut -d' ' -f1)
    echo "$used in the project"
    [ "$used" -ge $((30 * MIB)) ]
    [ "$used" -lt $((31 * MIB)) ]
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
}
has_output() { [ "$(stat -c %s "$attempts/$1".*/stdout)" = "$2" ]; }

# Whoever owns a file may say whose project it is, as the kernel has it.
projects_are_kept() {
    local other thief id
    other=$(submit --storage 40MiB -- sh -c 'exec sleep 600')
    reaches "$other" running
    id=$(project_of "$other")
    echo "project $id: $(project limit $attempts "$id") may be taken, $(project used $attempts "$id") are"
    # 40 MiB in the megabytes in which storage is granted, and 8 MiB, in whole KiB.
    [ "$(project limit $attempts "$id" | cut -d' ' -f1)" = $(((42000000 + 8 * MIB + 1023) / 1024 * 1024)) ]
    [ "$(project of "$(work_of "$other")")" = "$id 1" ]
    thief=$(submit --storage 40MiB -- sh -c "mkdir d; head -c 10M /dev/zero >x
        for p in 0 $id; do project give x \$p && echo moved; project give d \$p && echo moved; done
        project leave d && echo moved; head -c 200M /dev/zero >d/y || exit 3")
    reaches "$thief" failed
    [ "$(field "$thief" .reason.code)" = storage_exceeded ]
    sluice logs "$thief" 2>&1 | sed 's/^/    /'
    [ "$(sluice logs "$thief" 2>&1 | grep -c 'not permitted')" = 5 ]
    [ -z "$(sluice logs "$thief" 2>/dev/null)" ]
    # So could a program beside a step, and a step without a grant of its own.
    sluice exec "$other" -- sh -c 'touch y; project give y 0; project leave .' >/tmp/beside 2>&1 || cat /tmp/beside
    [ "$(grep -c 'not permitted' /tmp/beside)" = 2 ]
    thief=$(submit -- sh -c "touch x; project give x $id")
    reaches "$thief" failed
    [ "$(project used $attempts "$id" | cut -d' ' -f2)" -le 3 ]
    sluice cancel "$other" >/dev/null
    reaches "$other" cancelled
    # Its limit goes with it, and its files soon after.
    eventually 10 'the limit to be gone' has_no_limit "$id"
    eventually 30 'its files to be gone' has_no_files "$id"
}

# What still has files is nobody else's, whoever made them.
projects_are_given_again_late() {
    local step id n
    step=$(submit --storage 40MiB -- sh -c 'exec sleep 600')
    reaches "$step" running
    id=$(project_of "$step")
    for n in 1 2 3; do
        mkdir "$attempts/.stray$n"
        project give "$attempts/.stray$n" $((id + n))
    done
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
    step=$(submit --storage 40MiB -- sh -c 'exec sleep 600')
    reaches "$step" running
    echo "after $id, with three strays, comes $(project_of "$step")"
    [ "$(project_of "$step")" = $((id + 4)) ]
    sluice cancel "$step" >/dev/null
    reaches "$step" cancelled
    rmdir "$attempts"/.stray*
}

quotas_outlive_supervisors() {
    local step how id n
    for how in 'restart sluice-supervisor' 'kill -s KILL sluice-supervisor' 'reload sluice-supervisor'; do
        step=$(submit --storage 40MiB -- sh -c 'head -c 30M /dev/zero >x
            while [ ! -e go ]; do sleep 0.1; done; head -c 200M /dev/zero >y || exit 3')
        reaches "$step" running
        id=$(project_of "$step")
        n=$(supervisor_log | grep -c 'enforced by project quotas')
        # shellcheck disable=SC2086
        systemctl $how
        eventually 60 'the next supervisor' says_again 'enforced by project quotas' "$n"
        eventually 60 'the node to be ready' node_is_ready
        [ "$(project_of "$step")" = "$id" ]
        touch "$(work_of "$step")/go"
        reaches "$step" failed
        field "$step" '.reason | "\(.code) \(.detail.used_bytes)"'
        [ "$(field "$step" .reason.code)" = storage_exceeded ]
        is_within "$(field "$step" .reason.detail.used_bytes)"
    done
}

# The disk is mounted without quotas: what it has of projects changes nothing.
is_counted_without() {
    local step n
    use "$1" "$2" defaults 'storage limits are enforced by counting alone'
    supervisor_log | grep 'enforced by counting alone' | tail -n 1
    step=$(submit --storage 40MiB -- sh -c 'fallocate -l 100M x; exec sleep 600')
    reaches "$step" failed
    field "$step" '.reason | "\(.code) \(.detail.used_bytes)"'
    [ "$(field "$step" .reason.code)" = storage_exceeded ]
    [ "$(field "$step" .reason.detail.used_bytes)" -ge $((100 * MIB)) ]
}
counted() { is_counted_without "$disk" "$kind"; }

# use DISK KIND OPTIONS WORD: the attempts' directory is on this disk from now on, and the log says so.
use() {
    local n
    n=$(supervisor_log | grep -c "$4" || true)
    systemctl stop sluice-supervisor
    umount $attempts 2>/dev/null || true
    mount -t "$2" -o "$3" "$1" $attempts
    systemctl start sluice-supervisor
    eventually 60 "$4" says_again "$4" "$n"
    eventually 60 'the node to be ready' node_is_ready
}

cluster_up
for pair in vdc:ext4 vdd:xfs; do
    disk=/dev/${pair%%:*} kind=${pair##*:}
    use "$disk" "$kind" prjquota 'storage is enforced by project quotas'
    trial "$kind: no step takes more than 8 MiB beyond its grant, and its end says why" is_held
    trial "$kind: space is set aside within the grant" sets_aside
    trial "$kind: so are files" files_are_held
    trial "$kind: output is not in the project" output_is_outside
    trial "$kind: no step moves its files to another project" projects_are_kept
    trial "$kind: a project with files is given to nobody else" projects_are_given_again_late
    trial "$kind: quotas hold under the next supervisor" quotas_outlive_supervisors
    trial "$kind: without quotas it counts" counted
done
verdict
