//! System calls for project quotas that the C library lacks, and a seccomp filter that prevents a process
//! from moving files between projects. `storage::projects` uses them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// Quota type of projects, besides users (0) and groups (1).
const PROJECTS: libc::c_int = 2;

/// Commands, which are shifted by 8 bits to make room for the quota type.
const GET_QUOTA: libc::c_int = 0x80_0007;
const SET_QUOTA: libc::c_int = 0x80_0008;
const GET_STATE: libc::c_int = 0x5808;

/// Bits of the state: usage is counted, and limits are enforced.
const STATE_COUNTED: u16 = 1 << 4;
const STATE_KEPT: u16 = 1 << 5;

/// Unit of space limits, in bytes.
const LIMIT_UNIT: u64 = 1024;

/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`.
const GET_ATTRIBUTES: libc::Ioctl = 0x801c_581f;
const SET_ATTRIBUTES: libc::Ioctl = 0x401c_5820;

/// New files in a directory with this bit belong to the directory's project.
const INHERIT: u32 = 0x200;

/// Argument of the two calls for attributes: `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct FileAttributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// The first fields of `struct fs_quota_statv` in its first version, and room for the rest.
#[repr(C)]
struct QuotaState {
    version: i8,
    padding: u8,
    flags: u16,
    rest: [u64; 32],
}

/// Usage or limit of a project. A limit of 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectAmount {
    /// Space in bytes.
    pub bytes: u64,
    /// Number of files and directories.
    pub files: u64,
}

/// Whether the file system of a directory enforces project quotas.
///
/// # Errors
/// `ENOSYS` if the file system has no quotas or the kernel is older than 5.14.
pub fn is_kept(dir: BorrowedFd<'_>) -> io::Result<bool> {
    let mut state = QuotaState {
        version: 1,
        padding: 0,
        flags: 0,
        rest: [0; 32],
    };
    quotactl(dir, GET_STATE, 0, &mut state)?;
    let both = STATE_COUNTED | STATE_KEPT;
    Ok(state.flags & both == both)
}

/// Usage of a project on the file system of a directory.
///
/// # Errors
/// If the kernel cannot tell.
pub fn used(dir: BorrowedFd<'_>, project: u32) -> io::Result<ProjectAmount> {
    let mut quota = no_quota();
    match quotactl(dir, GET_QUOTA, project, &mut quota) {
        Ok(()) => Ok(ProjectAmount {
            bytes: quota.dqb_curspace,
            files: quota.dqb_curinodes,
        }),
        // XFS has no entry for a project that never had a file.
        Err(Errno::ENOENT) => Ok(ProjectAmount::default()),
        Err(e) => Err(e.into()),
    }
}

/// Sets the limit of a project on the file system of a directory.
///
/// # Errors
/// If the kernel rejects it.
pub fn set_limit(dir: BorrowedFd<'_>, project: u32, most: ProjectAmount) -> io::Result<()> {
    let mut quota = libc::dqblk {
        dqb_bhardlimit: most.bytes.div_ceil(LIMIT_UNIT),
        dqb_ihardlimit: most.files,
        dqb_valid: libc::QIF_LIMITS,
        ..no_quota()
    };
    Ok(quotactl(dir, SET_QUOTA, project, &mut quota)?)
}

fn no_quota() -> libc::dqblk {
    libc::dqblk {
        dqb_bhardlimit: 0,
        dqb_bsoftlimit: 0,
        dqb_curspace: 0,
        dqb_ihardlimit: 0,
        dqb_isoftlimit: 0,
        dqb_curinodes: 0,
        dqb_btime: 0,
        dqb_itime: 0,
        dqb_valid: 0,
    }
}

#[expect(unsafe_code, reason = "quotactl_fd has no wrapper")]
fn quotactl<T>(
    dir: BorrowedFd<'_>,
    command: libc::c_int,
    project: u32,
    argument: &mut T,
) -> nix::Result<()> {
    // SAFETY: `argument` has the type that each command reads and writes (the callers pair them), and is
    // valid for the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            dir.as_raw_fd(),
            command << 8 | PROJECTS,
            project,
            std::ptr::from_mut(argument),
        )
    };
    Errno::result(done).map(drop)
}

/// The project of a directory, and whether new files in it inherit the project.
///
/// # Errors
/// If the file system has no projects.
pub fn of(dir: BorrowedFd<'_>) -> io::Result<(u32, bool)> {
    let found = attributes(dir)?;
    Ok((found.project, found.flags & INHERIT != 0))
}

/// Assigns a directory, and new files in it, to a project; 0 means none.
///
/// # Errors
/// If the file system has no projects.
#[expect(unsafe_code, reason = "the call has no wrapper")]
pub fn give(dir: BorrowedFd<'_>, project: u32) -> io::Result<()> {
    let mut wanted = attributes(dir)?;
    wanted.project = project;
    wanted.flags = match project {
        0 => wanted.flags & !INHERIT,
        _ => wanted.flags | INHERIT,
    };
    // SAFETY: the call reads one such structure, which is valid for the call.
    let done = unsafe { libc::ioctl(dir.as_raw_fd(), SET_ATTRIBUTES, &raw const wanted) };
    Ok(Errno::result(done).map(drop)?)
}

#[expect(unsafe_code, reason = "the call has no wrapper")]
fn attributes(dir: BorrowedFd<'_>) -> nix::Result<FileAttributes> {
    let mut found = FileAttributes::default();
    // SAFETY: the call writes one such structure, which is valid for the call.
    let done = unsafe { libc::ioctl(dir.as_raw_fd(), GET_ATTRIBUTES, &raw mut found) };
    Errno::result(done).map(|_| found)
}

/// `ioctl` requests that could change a file's project: `FS_IOC_FSSETXATTR`, and `FS_IOC_SETFLAGS` of 64-bit
/// and 32-bit programs, which could remove [`INHERIT`] from a directory.
const REFUSED_REQUESTS: [u32; 3] = [SET_ATTRIBUTES as u32, 0x4008_6602, 0x4004_6602];

/// Numbers of `ioctl`: native, 32-bit and x32. On other machines one of them may be another call, whose
/// second argument never equals such a request.
#[cfg(target_arch = "x86_64")]
const IOCTL: [u32; 3] = [16, 54, 0x4000_0202];
#[cfg(not(target_arch = "x86_64"))]
const IOCTL: [u32; 2] = [29, 54];

/// `file_setattr` of Linux 6.17 and later, which has the same number on every machine; x32 sets a bit.
const FILE_SETATTR: [u32; 2] = [469, 0x4000_01d5];

/// Offsets of the call's number and of the lower half of its second argument in the filter's input.
const NUMBER_AT: u32 = 0;
const REQUEST_AT: u32 = 24;

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Prevents this process and its descendants from changing the project of a file, which the kernel otherwise
/// allows the file's owner. This also denies `chattr`, because the kernel has one call for all attributes and
/// a filter cannot see which attribute is meant. Requires `no_new_privs`.
///
/// # Errors
/// If the kernel has no seccomp filters.
#[expect(unsafe_code, reason = "seccomp has no wrapper")]
pub fn keep_projects() -> nix::Result<()> {
    let mut program = filter();
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).expect("the program is short"),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the length is that of the program, and the program and its description are valid for the call,
    // which copies them.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    Errno::result(done).map(drop)
}

/// Whether the kernel has seccomp filters.
#[expect(unsafe_code, reason = "seccomp has no wrapper")]
pub fn can_keep_projects() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads one integer, which is valid for the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    done == 0
}

/// ```text
/// number is FILE_SETATTR: refused
/// number is IOCTL, and the request is one of REFUSED_REQUESTS: refused
/// else: allowed
/// ```
fn filter() -> Vec<libc::sock_filter> {
    let one = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let (numbers, requests) = (IOCTL.len(), REFUSED_REQUESTS.len());
    // Distance from the next instruction to the last one, which denies, over the one before, which allows.
    let ahead = |left: usize| u8::try_from(left).expect("the program is short");
    let mut program = vec![one(LOAD, NUMBER_AT, 0, 0)];
    for (n, number) in FILE_SETATTR.iter().enumerate() {
        let to_refuse = ahead(FILE_SETATTR.len() - 1 - n + numbers + 1 + 1 + requests + 1);
        program.push(one(JUMP_IF_EQUAL, *number, to_refuse, 0));
    }
    for (n, number) in IOCTL.iter().enumerate() {
        // Over the other numbers, to the instruction that reads the request.
        let to_request = ahead(numbers - 1 - n + 1);
        program.push(one(JUMP_IF_EQUAL, *number, to_request, 0));
    }
    program.push(one(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    program.push(one(LOAD, REQUEST_AT, 0, 0));
    for (n, request) in REFUSED_REQUESTS.iter().enumerate() {
        let to_refuse = ahead(requests - 1 - n + 1);
        program.push(one(JUMP_IF_EQUAL, *request, to_refuse, 0));
    }
    program.push(one(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    program.push(one(RETURN, refused, 0, 0));
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    /// The filter's decision about a call, by interpreting its instructions.
    fn judged(number: u32, request: u32) -> u32 {
        let (program, mut at, mut loaded) = (filter(), 0, 0);
        loop {
            let it = program[at];
            at += 1;
            match it.code {
                LOAD if it.k == NUMBER_AT => loaded = number,
                LOAD => loaded = request,
                JUMP_IF_EQUAL => at += usize::from(if loaded == it.k { it.jt } else { it.jf }),
                _ => return it.k,
            }
        }
    }

    #[test]
    fn every_way_to_another_project_is_refused_and_nothing_else() {
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
        let allowed = libc::SECCOMP_RET_ALLOW;
        for number in IOCTL {
            for request in REFUSED_REQUESTS {
                assert_eq!(judged(number, request), refused, "{number} {request:x}");
            }
            for request in [0, 0x801c_581f, 0x8008_6601, 0x5401] {
                assert_eq!(judged(number, request), allowed, "{number} {request:x}");
            }
        }
        for number in FILE_SETATTR {
            assert_eq!(judged(number, 0), refused);
        }
        for number in [0, 1, 59, 257, 435, 468, 470] {
            assert_eq!(judged(number, REFUSED_REQUESTS[0]), allowed, "{number}");
        }
    }

    /// Tests the filter with this machine's kernel, in a thread of its own, which the filter ends with.
    #[test]
    fn a_thread_that_is_kept_can_change_no_project_and_no_flag_and_all_else() {
        let file = tempfile::tempfile().unwrap();
        let tried = std::thread::spawn(move || {
            let try_all = || {
                let requests = REFUSED_REQUESTS.map(libc::Ioctl::from);
                requests.map(|request| request_of(file.as_fd(), request))
            };
            let before = try_all();
            nix::sys::prctl::set_no_new_privs().unwrap();
            keep_projects().unwrap();
            let read = attributes(file.as_fd());
            (before, try_all(), read, fs_write(&file))
        });
        let (before, after, read, written) = tried.join().unwrap();
        assert!(can_keep_projects());
        assert!(
            before.iter().any(|it| *it != Err(Errno::EPERM)),
            "{before:?}"
        );
        assert_eq!(after, [Err(Errno::EPERM); 3]);
        assert_ne!(read.err(), Some(Errno::EPERM));
        assert!(written.is_ok());
    }

    fn fs_write(mut file: &File) -> io::Result<()> {
        io::Write::write_all(&mut file, b"x")
    }

    /// All zeros, which every file system that knows the call accepts.
    #[expect(unsafe_code, reason = "the call has no wrapper")]
    fn request_of(file: BorrowedFd<'_>, request: libc::Ioctl) -> nix::Result<()> {
        let zeros = [0_u64; 4];
        // SAFETY: none of these requests reads more than that.
        let done = unsafe { libc::ioctl(file.as_raw_fd(), request, zeros.as_ptr()) };
        Errno::result(done).map(drop)
    }

    #[test]
    fn a_file_system_without_quotas_says_so() {
        // A file system without quotas on any machine.
        let proc = File::open("/proc").unwrap();
        assert!(!matches!(is_kept(proc.as_fd()), Ok(true)));
        assert!(of(proc.as_fd()).is_err());
    }
}
