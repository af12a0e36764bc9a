// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The invariants, and the brute-force oracle.
//!
//! Numbers are those of the list in the kernel's description of the algorithm: 1 one owner, 2 bit 0, 3 the tree, 4 the
//! owner's tree, 5 urgency along chains, 6 queued and blocked, 7 return values, 8 no lost wake-up, 9 two raw locks and an
//! end, 10 freed locks, 11 readers and writers. 1, 7, 10 and 11 are checked by the programs of the tests, 9 by the model's
//! raw locks, the rest here.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use fastpath_rtmutex::kernel::{Key, inspect};

use super::{Event, Machine, Model, T, guard};

type Queue = Vec<inspect::Queued>;

/// A lock under observation.
pub struct Watched {
    word: Box<dyn Fn() -> (*const (), bool) + Send>,
    quiet: Box<dyn Fn() -> bool + Send>,
    queue: Box<dyn Fn() -> Queue + Send>,
}

impl Watched {
    pub fn new<L: inspect::Inspect<Model> + Sync>(lock: &'static L) -> Self {
        Self {
            word: Box::new(|| inspect::word(lock)),
            quiet: Box::new(|| inspect::is_quiet(lock)),
            queue: Box::new(|| {
                let mut queue = Queue::new();
                // SAFETY: everybody else stands still, and the lock was found quiet.
                unsafe { inspect::waiters(lock, &mut |queued| queue.push(queued)) };
                queue
            }),
        }
    }

    pub fn word(&self) -> (*const (), bool) {
        (self.word)()
    }
}

/// Checks what can be checked at this moment: what is being changed under a raw lock is left alone.
pub fn invariants(machine: &Machine) {
    let watched = guard(&machine.watched);
    let tasks = guard(&machine.tasks);
    // The queues of the locks that are at rest.
    let mut queues: Vec<(*const (), Option<Queue>)> = Vec::new();
    let mut stray_bit = false;
    let wake_pending = tasks.iter().any(|task| task.data().preempt_off.load(Relaxed) > 0);
    for lock in watched.iter() {
        let (owner, bit) = lock.word();
        if !(lock.quiet)() {
            queues.push((owner, None));
            continue;
        }
        // 3 and half of 6: `waiters` asserts order, balance, back pointers.
        let queue = (lock.queue)();
        assert!(bit || queue.is_empty(), "2: waiters, but bit 0 is clear");
        stray_bit |= bit && queue.is_empty();
        if owner.is_null() && !queue.is_empty() && !wake_pending {
            let top =
                tasks.iter().find(|task| inspect::address(**task) == queue[0].task).expect("a known task");
            assert!(has_wake_up(top), "8: the lock is free, and {} sleeps", top.data().name);
        }
        queues.push((owner, Some(queue)));
    }
    let all_quiet = queues.iter().all(|(_, queue)| queue.is_some());
    for task in tasks.iter() {
        if !inspect::is_quiet_task(*task) {
            continue;
        }
        let me = inspect::address(*task);
        // SAFETY: everybody else stands still, and the task was found quiet.
        let ((base, effective, blocked), heirs) = unsafe {
            let mut heirs = Vec::new();
            inspect::heirs(*task, &mut |heir, key| heirs.push((heir, key)));
            (inspect::task(*task), heirs)
        };
        let inherited = heirs.first().map_or(base, |&(_, key)| base.most_urgent(key));
        assert_eq!(effective, inherited, "5: {} runs at its own or its top heir's urgency", task.data().name);
        let told = *guard(&task.data().runs_at);
        assert_eq!(told, effective, "the scheduler knows how urgent {} is", task.data().name);
        // A lock whose raw lock is held may be on its way to or from this task.
        let moving = queues.iter().any(|(owner, queue)| queue.is_none() && (*owner == me || owner.is_null()));
        if !moving {
            let owned = queues.iter().filter(|(owner, _)| *owner == me);
            let mut tops: Vec<*const ()> =
                owned.filter_map(|(_, queue)| queue.as_ref()?.first().map(|top| top.task)).collect();
            let mut seen: Vec<*const ()> = heirs.iter().map(|&(heir, _)| heir).collect();
            tops.sort_unstable();
            seen.sort_unstable();
            assert_eq!(
                seen,
                tops,
                "4: {} inherits from exactly the top waiters of its locks",
                task.data().name
            );
        }
        if all_quiet {
            let places =
                queues.iter().flat_map(|(_, queue)| queue.iter().flatten()).filter(|q| q.task == me).count();
            assert_eq!(places, usize::from(blocked), "6: {} is queued once if blocked", task.data().name);
        }
    }
    let at_rest = |task: &T| task.data().busy.load(Relaxed) == 0 && inspect::is_quiet_task(*task);
    if all_quiet
        && machine.changing.load(Relaxed) == 0
        && !machine.truncated.load(Relaxed)
        && tasks.iter().all(at_rest)
    {
        machine.compared.fetch_add(1, Relaxed);
        assert!(!stray_bit, "2: no waiters and nothing under way, but bit 0 is set");
        oracle(&tasks, &queues);
    }
}

/// Has `task` a reason to run?
fn has_wake_up(task: T) -> bool {
    let course = guard(&task.data().course);
    course.last != Event::Parked
        || course.token
        || course.deadline.is_some_and(|at| task.data().machine.now() >= at)
}

/// 5, from scratch: each owner is as urgent as the most urgent of those it holds up, found by repeating until nothing
/// changes. Compared when no operation is under way.
fn oracle(tasks: &[T], queues: &[(*const (), Option<Queue>)]) {
    if has_ring(queues) {
        return;
    }
    // SAFETY: everybody stands still and is quiet.
    let base = |task: &T| unsafe { inspect::task(*task).0 };
    let mut urgency: HashMap<*const (), Key> =
        tasks.iter().map(|t| (inspect::address(*t), base(t))).collect();
    loop {
        let before = urgency.clone();
        for (owner, queue) in queues {
            for queued in queue.iter().flatten() {
                let key = urgency[&queued.task];
                if let Some(mine) = urgency.get_mut(owner) {
                    *mine = mine.most_urgent(key);
                }
            }
        }
        if before == urgency {
            break;
        }
    }
    for task in tasks {
        // SAFETY: as above.
        let effective = unsafe { inspect::task(*task).1 };
        let wanted = urgency[&inspect::address(*task)];
        assert_eq!(effective, wanted, "5: {} against the oracle", task.data().name);
    }
    for queued in queues.iter().flat_map(|(_, queue)| queue.iter().flatten()) {
        assert_eq!(queued.key, urgency[&queued.task], "5: queued as urgent as it is");
    }
}

/// Does somebody wait for itself? Wound/wait lets that happen, until the one who was told to gives way; the walk ends where
/// it finds the ring closed, so urgency need not have got all the way around.
fn has_ring(queues: &[(*const (), Option<Queue>)]) -> bool {
    let waits_for: HashMap<*const (), *const ()> = queues
        .iter()
        .flat_map(|(owner, queue)| queue.iter().flatten().map(|queued| (queued.task, *owner)))
        .filter(|(_, owner)| !owner.is_null())
        .collect();
    waits_for.keys().any(|&start| {
        let mut at = start;
        for _ in 0..waits_for.len() {
            match waits_for.get(&at) {
                Some(&next) if next == start => return true,
                Some(&next) => at = next,
                None => return false,
            }
        }
        false
    })
}
