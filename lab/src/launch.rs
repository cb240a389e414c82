//! Starts Debian's kernel on processors with more registers than it can save.
//!
//! User Mode Linux 6.1 saves a guest process's registers in a buffer without room for AMX tiles (8 KiB). Where the
//! host has AMX, its kernel refuses to restore such a short state (`PTRACE_SETREGSET` returns EFAULT), and every
//! guest process dies with "ptrace set fp regs failed, errno = 14". The lab's own build has a larger buffer. Debian's
//! binary tries once at boot to read the extended state, and falls back to the classic x87/SSE state if that fails.
//! A system call filter makes it fail. The classic state lacks the AVX registers, so that
//! [`guest_tunables`] keeps the guest's C library from using them.

use std::collections::BTreeMap;
use std::io;
use std::process::{Child, Command};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use crate::Clock;
use crate::processor::Processor;

const SYS_PTRACE: i64 = 101;
const PTRACE_GETREGSET: u64 = 0x4204;
const NT_X86_XSTATE: u64 = 0x202;
const EINVAL: u32 = 22;

/// Starts the kernel on this processor, with the system call filter if this kernel on this machine needs it.
pub(crate) fn spawn(mut command: Command, clock: Clock, processor: Option<&Processor>) -> io::Result<Child> {
    let filter = match guest_tunables(clock) {
        Some(_) => Some(filter().map_err(io::Error::other)?),
        None => None,
    };
    // Processor and filter apply to the calling thread and the processes that it starts: a separate thread keeps this one free
    // of them.
    std::thread::scope(|scope| {
        let starter = scope.spawn(|| {
            if let Some(processor) = processor {
                processor.bind_thread();
            }
            if let Some(filter) = filter {
                apply_filter(&filter).map_err(io::Error::other)?;
            }
            command.spawn()
        });
        starter.join().expect("the thread has nothing to panic about")
    })
}

/// A word of the kernel's command line that sets an environment variable of the guest's first process: tunables of glibc
/// (see its manual, "Tunables"). `None` if they are not needed.
pub(crate) fn guest_tunables(clock: Clock) -> Option<String> {
    let needed = clock.is_debians() && has_amx();
    needed.then(|| {
        format!(
            "{TUNABLES}=glibc.cpu.hwcaps={}",
            AVX.map(|feature| format!("-{feature}")).join(",")
        )
    })
}

/// The environment variable. The agent passes it on to the programs that it starts.
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
