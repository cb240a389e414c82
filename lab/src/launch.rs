//! Starts Debian's kernel on processors whose register state has outgrown it.
//!
//! User Mode Linux 6.1 saves a guest process's registers in a buffer without room for AMX tiles (8 KiB). Where the
//! host has them, its kernel refuses to take such a short state back (`PTRACE_SETREGSET` answers EFAULT) and every
//! guest process dies with "ptrace set fp regs failed, errno = 14". The lab's own build has a larger buffer. Debian's
//! binary asks once at boot whether the extended state can be read and falls back to the classic x87/SSE state if
//! not; so it is told "no", by a system call filter that it inherits. That state lacks the AVX registers, therefore
//! [`guest_tunables`] keeps the guest's C library from using them.

use std::collections::BTreeMap;
use std::io;
use std::process::{Child, Command};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use crate::Clock;

const SYS_PTRACE: i64 = 101;
const PTRACE_GETREGSET: u64 = 0x4204;
const NT_X86_XSTATE: u64 = 0x202;
const EINVAL: u32 = 22;

/// Starts the kernel, with the filter where it and this machine need it.
pub(crate) fn spawn(mut command: Command, clock: Clock) -> io::Result<Child> {
    if guest_tunables(clock).is_none() {
        return command.spawn();
    }
    let filter = filter().map_err(io::Error::other)?;
    // The filter binds the thread that applies it and the processes it starts: a thread of its own keeps this one free.
    std::thread::spawn(move || {
        apply_filter(&filter).map_err(io::Error::other)?;
        command.spawn()
    })
    .join()
    .expect("the thread has nothing to panic about")
}

/// A word of the kernel's command line that becomes the environment of the guest's first process: settings of glibc
/// (see its manual, "Tunables"). `None` where nothing needs them.
pub(crate) fn guest_tunables(clock: Clock) -> Option<String> {
    let needed = clock.is_debians() && has_amx();
    needed.then(|| {
        format!(
            "{TUNABLES}=glibc.cpu.hwcaps={}",
            AVX.map(|feature| format!("-{feature}")).join(",")
        )
    })
}

/// The environment variable, which the agent hands on to what it starts.
pub(crate) const TUNABLES: &str = "GLIBC_TUNABLES";

const AVX: [&str; 7] = [
    "AVX",
    "AVX2",
    "AVX512F",
    "AVX512VL",
    "AVX512BW",
    "AVX_Fast_Unaligned_Load",
    "XSAVEC",
];

fn has_amx() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|info| info.contains(" amx_tile"))
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let is =
        |argument, value| SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, value);
    let reads_extended_state = SeccompRule::new(vec![is(0, PTRACE_GETREGSET)?, is(2, NT_X86_XSTATE)?])?;
    SeccompFilter::new(
        BTreeMap::from([(SYS_PTRACE, vec![reads_extended_state])]),
        SeccompAction::Allow,
        SeccompAction::Errno(EINVAL),
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()
}
