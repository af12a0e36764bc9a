// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What people need beside a real-time mutex: set a thread's priority and be told why not; see the priority a thread
//! really runs with.

use core::fmt;
use std::io;
use std::time::Duration;

use fastpath_sys::{Errno, pi_support, sched};

use super::tid;

/// A thread of this process, by the kernel's number.
///
/// ```
/// use fastpath_rtmutex::linux::priority::Thread;
/// let me = Thread::current();
/// let other = std::thread::spawn(Thread::current).join().unwrap();
/// assert_ne!(me, other);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thread(u32);

impl Thread {
    /// The calling thread.
    #[doc(alias = "gettid")]
    pub fn current() -> Self {
        Self(tid::current())
    }

    /// The thread with this number, as `/proc/self/task` shows it.
    pub const fn from_id(id: u32) -> Self {
        Self(id)
    }

    /// The kernel's number.
    pub const fn id(self) -> u32 {
        self.0
    }
}

/// How a thread is scheduled when nobody boosts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Priority {
    /// `SCHED_OTHER`: shares the CPU fairly. Waiters of this kind boost nobody.
    Other,
    /// `SCHED_FIFO`, 1 (weakest) to 99: runs until it blocks or something stronger comes.
    Fifo(u8),
    /// `SCHED_RR`, 1 to 99: as FIFO, but takes turns with its equals.
    RoundRobin(u8),
    /// `SCHED_DEADLINE`: in each period it gets `runtime` before `deadline` has passed. Stronger than every FIFO.
    Deadline {
        /// What it may consume in each period.
        runtime: Duration,
        /// By when it has got it, from the period's start.
        deadline: Duration,
        /// How often this repeats.
        period: Duration,
    },
}

/// Why a priority could not be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PriorityError {
    /// The process lacks the right.
    NotPermitted {
        /// What was asked for.
        wanted: Priority,
        /// The highest real-time priority the process may set without privilege; `None` for no limit.
        limit: Option<u64>,
    },
    /// The number is out of range: FIFO and round robin go from 1 to 99, and runtime <= deadline <= period.
    OutOfRange(Priority),
    /// The machine has not so much deadline time left.
    Exhausted,
    /// There is no such thread (any more).
    NoSuchThread(Thread),
    /// Anything else, as errno.
    System(i32),
}

impl fmt::Display for PriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted { wanted: Priority::Deadline { .. }, .. } => f.write_str(
                "SCHED_DEADLINE is not permitted: it needs CAP_SYS_NICE (root), and a thread that may run on each CPU of \
                 its scheduling domain",
            ),
            Self::NotPermitted { wanted: Priority::Fifo(priority) | Priority::RoundRobin(priority), limit } => {
                if limit.is_none_or(|limit| limit >= u64::from(*priority)) {
                    return write!(
                        f,
                        "real-time priority {priority} is not permitted although RLIMIT_RTPRIO allows it: the process \
                         is in a control group without real-time budget (cpu.rt_runtime_us)"
                    );
                }
                let limit = limit.unwrap_or(0);
                write!(
                    f,
                    "real-time priority {priority} is not permitted: it needs CAP_SYS_NICE (root), or RLIMIT_RTPRIO of \
                     at least {priority} (it is {limit}; see `rtprio` in limits.conf, `LimitRTPRIO=` in systemd), and a \
                     control group with real-time budget"
                )
            }
            Self::NotPermitted { .. } => f.write_str("changing this thread's scheduling is not permitted"),
            Self::OutOfRange(wanted) => write!(f, "{wanted:?} is out of range"),
            Self::Exhausted => f.write_str("the machine has not enough deadline time left"),
            Self::NoSuchThread(thread) => write!(f, "there is no thread {}", thread.0),
            Self::System(errno) => fmt::Display::fmt(&io::Error::from_raw_os_error(*errno), f),
        }
    }
}

impl core::error::Error for PriorityError {}

/// Sets how `thread` is scheduled. A boost it has at the moment stays as long as its reason does.
///
/// Threads made by a real-time thread inherit its scheduling.
///
/// # Errors
///
/// See [`PriorityError`], whose text says what to do.
///
/// ```
/// use fastpath_rtmutex::linux::priority::{self, Priority, PriorityError, Thread};
///
/// match priority::set(Thread::current(), Priority::Fifo(10)) {
///     Ok(()) => priority::set(Thread::current(), Priority::Other).unwrap(),
///     Err(error @ PriorityError::NotPermitted { .. }) => println!("{error}"),
///     Err(other) => panic!("{other}"),
/// }
/// assert!(matches!(priority::set(Thread::current(), Priority::Fifo(100)), Err(PriorityError::OutOfRange(_))));
/// ```
#[doc(alias = "sched_setscheduler")]
#[doc(alias = "pthread_setschedparam")]
pub fn set(thread: Thread, priority: Priority) -> Result<(), PriorityError> {
    let result = match priority {
        Priority::Other => sched::set_policy(thread.0, sched::Policy::Other),
        Priority::Fifo(number @ 1..=99) => sched::set_policy(thread.0, sched::Policy::Fifo(number)),
        Priority::RoundRobin(number @ 1..=99) => {
            sched::set_policy(thread.0, sched::Policy::RoundRobin(number))
        }
        Priority::Fifo(_) | Priority::RoundRobin(_) => Err(Errno::INVAL),
        Priority::Deadline { runtime, deadline, period } => {
            pi_support::set_deadline(thread.0, runtime, deadline, period)
        }
    };
    result.map_err(|errno| match errno {
        Errno::PERM => PriorityError::NotPermitted { wanted: priority, limit: pi_support::real_time_limit() },
        Errno::INVAL => PriorityError::OutOfRange(priority),
        Errno::BUSY => PriorityError::Exhausted,
        Errno::SRCH => PriorityError::NoSuchThread(thread),
        other => PriorityError::System(other.raw_os_error()),
    })
}

/// The priority the kernel schedules a thread with at this moment, boosts included.
///
/// Ordered by strength: the stronger is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effective(i32);

impl Effective {
    /// The kernel's number, as in `/proc`: -101 for deadline, -2 to -100 for real-time priorities 1 to 99, and 0 to 39
    /// for nice -20 to 19. The smaller the stronger.
    pub const fn kernel_number(self) -> i32 {
        self.0
    }

    /// The real-time priority, 1 to 99, if it runs with one.
    pub const fn real_time(self) -> Option<u8> {
        match self.0 {
            -100..=-2 => Some((-1 - self.0) as u8),
            _ => None,
        }
    }

    /// Whether it runs as a deadline thread does.
    pub const fn is_deadline(self) -> bool {
        self.0 <= -101
    }
}

impl PartialOrd for Effective {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Effective {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        other.0.cmp(&self.0)
    }
}

impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.real_time() {
            Some(number) => write!(f, "real-time {number}"),
            None if self.is_deadline() => f.write_str("deadline"),
            None => write!(f, "nice {}", self.0 - 20),
        }
    }
}

/// The priority `thread` runs with at this moment: field 18 of `/proc/self/task/N/stat`. Its own priority, which
/// `sched_getparam` tells, does not show a boost.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] if there is no such thread in this process, or no `/proc`.
///
/// ```
/// use fastpath_rtmutex::linux::priority::{self, Thread};
/// println!("running as {}", priority::effective(Thread::current()).unwrap());
/// ```
pub fn effective(thread: Thread) -> io::Result<Effective> {
    let stat = std::fs::read_to_string(std::format!("/proc/self/task/{}/stat", thread.0))?;
    parse(&stat).map(Effective).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no field 18"))
}

/// Field 18. The second field is the thread's name in parentheses, which may contain anything, parentheses included.
fn parse(stat: &str) -> Option<i32> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(15)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn field_18_is_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 -51 0 17 0";
        for name in ["a", "a b", "x) S 1 (", ") ) )"] {
            assert_eq!(parse(&std::format!("77 ({name}) {rest}")), Some(-51), "{name}");
        }
        assert_eq!(parse(""), None);
        assert_eq!(parse("77 (a) S 1"), None);
    }

    #[test]
    fn numbers_mean_what_the_kernel_means() {
        assert_eq!(Effective(-51).real_time(), Some(50));
        assert_eq!(Effective(-2).real_time(), Some(1));
        assert_eq!(Effective(-100).real_time(), Some(99));
        assert_eq!(Effective(-101).real_time(), None);
        assert!(Effective(-101).is_deadline());
        assert_eq!(Effective(20).real_time(), None);
        assert!(Effective(-51) > Effective(-11) && Effective(-11) > Effective(20));
        assert_eq!(Effective(20).to_string(), "nice 0");
        assert_eq!(Effective(-31).to_string(), "real-time 30");
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let refusal = PriorityError::NotPermitted { wanted: Priority::Fifo(50), limit: Some(0) };
        assert!(refusal.to_string().contains("RLIMIT_RTPRIO of at least 50 (it is 0"), "{refusal}");
        let group = PriorityError::NotPermitted { wanted: Priority::Fifo(50), limit: Some(99) };
        assert!(group.to_string().contains("cpu.rt_runtime_us"), "{group}");
    }

    #[test]
    fn a_thread_that_ended_has_no_priority() {
        assert!(effective(Thread::from_id(u32::MAX >> 2)).is_err());
        assert!(matches!(
            set(Thread::from_id(u32::MAX >> 2), Priority::Other),
            Err(PriorityError::NoSuchThread(_))
        ));
    }
}
