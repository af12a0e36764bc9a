// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `Arc` and its family as users see them: drops counted, panics survived, every kind of value.
#![cfg(all(not(loom), feature = "alloc"))]
#![expect(unsafe_code, reason = "raw pointers of handles, and a counting allocator")]

use std::alloc::Layout;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastpath_refcount::{Arc, ArcAllocator, Global, HeaderSlice, UniqueArc, weak};

/// Counts the living values of its kind.
#[derive(Debug)]
struct Live<'a>(&'a AtomicUsize);

impl<'a> Live<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Clone for Live<'_> {
    fn clone(&self) -> Self {
        Self::new(self.0)
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts the blocks and checks that each is given back with the layout it was asked for.
#[derive(Clone)]
struct Tracking<'a> {
    blocks: &'a AtomicUsize,
    bytes: &'a AtomicUsize,
}

// SAFETY: everything is passed on to `Global`.
unsafe impl ArcAllocator for Tracking<'_> {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(layout.size() + layout.align(), Ordering::Relaxed);
        Global.allocate(layout)
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        self.blocks.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(layout.size() + layout.align(), Ordering::Relaxed);
        // SAFETY: the caller's promise is the one asked for.
        unsafe { Global.deallocate(memory, layout) }
    }
}

/// An allocator that never has memory.
struct Empty;

// SAFETY: it never gives memory out.
unsafe impl ArcAllocator for Empty {
    fn allocate(&self, _: Layout) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn deallocate(&self, _: NonNull<u8>, _: Layout) {
        unreachable!("nothing was given out")
    }
}

/// Runs `test` with a live-value counter and a tracking allocator; both must be back at zero afterwards.
fn balanced(test: impl FnOnce(&AtomicUsize, Tracking<'_>)) {
    let (live, blocks, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    test(&live, Tracking { blocks: &blocks, bytes: &bytes });
    let left = [live, blocks, bytes].map(AtomicUsize::into_inner);
    assert_eq!(left, [0; 3], "values, blocks, bytes left");
}

#[test]
fn last_handle_drops_once() {
    balanced(|live, allocator| {
        let one = Arc::new_in(Live::new(live), allocator);
        let two = Arc::clone(&one);
        drop(one);
        assert_eq!(live.load(Ordering::Relaxed), 1);
        drop(two);
        assert_eq!(live.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn values_move_out() {
    balanced(|live, allocator| {
        let value = Arc::try_unwrap(Arc::new_in(Live::new(live), allocator.clone()))
            .unwrap_or_else(|_| panic!("only one"));
        assert_eq!(live.load(Ordering::Relaxed), 1);
        let one = Arc::new_in(value, allocator.clone());
        let two = Arc::clone(&one);
        assert!(Arc::into_inner(one).is_none());
        let value = Arc::into_inner(two).expect("the last one");
        let value = UniqueArc::new_in(value, allocator.clone()).into_inner();
        let one = weak::Arc::new_in(value, allocator);
        let weak = weak::Arc::downgrade(&one);
        drop(weak::Arc::try_unwrap(one).unwrap_or_else(|_| panic!("only one")));
        assert!(weak.upgrade().is_none());
        assert_eq!(live.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn make_mut_and_unwrap_or_clone() {
    balanced(|live, allocator| {
        let mut one = Arc::new_in((1, Live::new(live)), allocator);
        let address = Arc::as_ptr(&one);
        Arc::make_mut(&mut one).0 = 2;
        assert_eq!(Arc::as_ptr(&one), address, "the only handle changes in place");
        let two = Arc::clone(&one);
        Arc::make_mut(&mut one).0 = 3;
        assert_eq!((one.0, two.0, live.load(Ordering::Relaxed)), (3, 2, 2));
        let three = Arc::clone(&two);
        assert_eq!(Arc::unwrap_or_clone(three).0, 2);
        assert_eq!(Arc::unwrap_or_clone(two).0, 2);
    });
}

#[test]
fn slices_strings_and_headers() {
    balanced(|live, allocator| {
        for len in [0, 1, 7] {
            let slice = Arc::from_iter_in((0..len).map(|_| Live::new(live)), allocator.clone());
            assert_eq!((slice.len(), live.load(Ordering::Relaxed)), (len, len));
            let header =
                Arc::from_header_and_iter_in(Live::new(live), slice.iter().cloned(), allocator.clone());
            assert_eq!((header.slice.len(), live.load(Ordering::Relaxed)), (len, 2 * len + 1));
        }
        assert_eq!(&*Arc::from_str_in("häder", allocator.clone()), "häder");
        // Layouts with every kind of gap.
        let odd = Arc::from_header_and_iter_in(1_u8, [2_u64, 3].into_iter(), allocator.clone());
        assert_eq!((odd.header, &odd.slice), (1, &[2, 3][..]));
        let odd = Arc::from_header_and_iter_in(1_u64, [2_u8, 3, 4].into_iter(), allocator.clone());
        assert_eq!((odd.header, &odd.slice), (1, &[2, 3, 4][..]));
        let empty = Arc::from_header_and_iter_in((), std::iter::empty::<u64>(), allocator);
        assert_eq!(empty.slice.len(), 0);
    });
    assert_eq!(*Arc::<[i32]>::from(vec![1, 2]), [1, 2]);
    assert_eq!(*Arc::<[i32]>::from([1, 2]), [1, 2]);
    assert_eq!(*Arc::<[i32]>::from(&[1, 2][..]), [1, 2]);
    assert_eq!(*(1..4).filter(|n| n % 2 == 1).collect::<Arc<[i32]>>(), [1, 3]);
    assert_eq!(&*Arc::<str>::from(String::from("text")), "text");
    assert_eq!(&*Arc::<str>::from(std::borrow::Cow::from("text")), "text");
    assert_eq!(*Arc::<[u8]>::from(Arc::<str>::from("ab")), *b"ab");
    assert_eq!(*Arc::<[i32; 2]>::try_from(Arc::<[i32]>::from([1, 2])).expect("two"), [1, 2]);
    assert!(Arc::<[i32; 3]>::try_from(Arc::<[i32]>::from([1, 2])).is_err());
    assert_eq!(
        (Arc::<str>::default().len(), Arc::<[u8]>::default().len(), *Arc::<i32>::default()),
        (0, 0, 0)
    );
}

/// Says a length and keeps another.
struct Liar(std::vec::IntoIter<Box<i32>>, usize);

impl Iterator for Liar {
    type Item = Box<i32>;

    fn next(&mut self) -> Option<Box<i32>> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.1, Some(self.1))
    }
}

impl ExactSizeIterator for Liar {}

#[test]
fn panics_while_building_leak_nothing() {
    balanced(|live, allocator| {
        let fails = |at: usize| {
            let result = catch_unwind(AssertUnwindSafe(|| {
                let items = (0..5).map(|i| if i == at { panic!("element {i}") } else { Live::new(live) });
                Arc::from_header_and_iter_in(Live::new(live), items, allocator.clone())
            }));
            assert!(result.is_err());
            assert_eq!(live.load(Ordering::Relaxed), 0);
        };
        (0..5).for_each(fails);
        for said in [1, 3] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                Arc::from_iter_in(Liar(vec![Box::new(1), Box::new(2)].into_iter(), said), allocator.clone())
            }));
            assert!(result.is_err());
        }
    });
}

#[test]
fn a_destructor_that_panics_still_frees_the_block() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("in the destructor");
        }
    }
    balanced(|_, allocator| {
        let one = Arc::new_in(Bad, allocator.clone());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(one))).is_err());
        let one = weak::Arc::new_in(Bad, allocator);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(one))).is_err());
    });
}

#[test]
fn raw_pointers_come_back_for_every_kind_of_value() {
    fn round_trip<T: ?Sized + Debug>(handle: Arc<T>) -> String {
        let raw = Arc::into_raw(handle);
        // SAFETY: the pointer is from `into_raw`; one more count is taken and given back.
        unsafe {
            Arc::increment_strong_count(raw);
            let back = Arc::from_raw(raw);
            assert_eq!(Arc::strong_count(&back), 2);
            Arc::decrement_strong_count(raw);
            assert_eq!(Arc::strong_count(&back), 1);
            format!("{back:?}")
        }
    }
    #[derive(Debug)]
    #[repr(align(128))]
    #[expect(dead_code, reason = "printed")]
    struct Wide(u8);

    assert_eq!(round_trip(Arc::new(1_u8)), "1");
    assert_eq!(round_trip(Arc::new(())), "()");
    assert_eq!(round_trip(Arc::new(Wide(1))), "Wide(1)");
    assert_eq!(round_trip(Arc::<[u64]>::from([1, 2])), "[1, 2]");
    assert_eq!(round_trip(Arc::<str>::from("x")), "\"x\"");
    assert_eq!(round_trip(Arc::<dyn Debug>::from(Box::new(Wide(1)) as Box<dyn Debug>)), "Wide(1)");
    assert_eq!(
        round_trip(Arc::from_header_and_iter(1_u8, [2_u64].into_iter())),
        "HeaderSlice { header: 1, slice: [2] }"
    );
    // A pointer unsized on the way: an Arc of the sized type becomes one of the trait object.
    let raw = Arc::into_raw(Arc::new(Wide(7))) as *const dyn Debug;
    // SAFETY: from `into_raw`, unsized since.
    assert_eq!(format!("{:?}", unsafe { Arc::from_raw(raw) }), "Wide(7)");
}

#[test]
fn boxes_move_into_blocks() {
    let live = AtomicUsize::new(0);
    let one: Arc<Live<'_>> = Arc::from(Box::new(Live::new(&live)));
    let two: Arc<dyn Debug + '_> = Arc::from(Box::new(Live::new(&live)) as Box<dyn Debug + '_>);
    let three: weak::Arc<dyn Debug + '_> = weak::Arc::from(Box::new(Live::new(&live)) as Box<dyn Debug + '_>);
    let four: Arc<[Live<'_>]> = Arc::from(vec![Live::new(&live)].into_boxed_slice());
    assert_eq!(live.load(Ordering::Relaxed), 4);
    drop((one, two, three, four));
    assert_eq!(live.load(Ordering::Relaxed), 0);
    assert_eq!(&*Arc::<str>::from(Box::<str>::from("boxed")), "boxed");
}

#[test]
fn no_memory_gives_the_value_back() {
    let (value, Empty) = Arc::try_new_in(5, Empty).map(|_| ()).expect_err("there is none");
    assert_eq!(value, 5);
}

#[test]
fn comparisons_and_formatting_are_those_of_the_value() {
    use std::collections::{BTreeSet, HashSet};

    let (one, two) = (Arc::<str>::from("1"), Arc::<str>::from("2"));
    assert!(one < two && one == Arc::from("1"));
    let hashed: HashSet<_> = [one.clone(), two.clone()].into();
    assert!(hashed.contains("1"), "found by what it borrows");
    let sorted: BTreeSet<_> = [two, one].into();
    assert_eq!(format!("{sorted:?}"), r#"{"1", "2"}"#);
    let pointer = Arc::new(5);
    assert_eq!(format!("{pointer:p}"), format!("{:p}", Arc::as_ptr(&pointer)));
    let error: Box<dyn std::error::Error> = Box::new(Arc::new(std::fmt::Error));
    assert!(!error.to_string().is_empty());
}

#[test]
fn threads_share_and_one_frees() {
    let live = AtomicUsize::new(0);
    for _ in 0..200 {
        let shared = Arc::new(Live::new(&live));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let mine = Arc::clone(&shared);
                scope.spawn(move || {
                    for _ in 0..20 {
                        drop(Arc::clone(&mine));
                    }
                });
            }
            drop(shared);
        });
        assert_eq!(live.load(Ordering::Relaxed), 0);
    }
}

/// Upgrades, downgrades and `get_mut` of the weak form against each other: `get_mut` succeeds only when alone.
#[test]
fn weak_form_storm() {
    let shared = weak::Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut mine = weak::Arc::clone(&shared);
            scope.spawn(move || {
                for _ in 0..2000 {
                    let weak = weak::Arc::downgrade(&mine);
                    let again = weak.upgrade().expect("we hold one");
                    drop(weak);
                    assert!(weak::Arc::get_mut(&mut mine).is_none(), "others hold it");
                    again.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let mut shared = shared;
    assert_eq!(*weak::Arc::get_mut(&mut shared).expect("alone again").get_mut(), 4000);
    assert_eq!((weak::Arc::strong_count(&shared), weak::Arc::weak_count(&shared)), (1, 0));
}

#[test]
fn header_slice_is_an_ordinary_type_too() {
    let value = HeaderSlice { header: 1, slice: [2, 3] };
    let unsized_value: &HeaderSlice<i32, [i32]> = &value;
    assert_eq!(unsized_value.slice, [2, 3]);
}

#[cfg(feature = "std")]
#[test]
fn shared_files_read_and_write() {
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::fd::{AsFd, AsRawFd};

    let path = std::env::temp_dir().join(format!("fastpath-refcount-{}", std::process::id()));
    let options = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let mut file = Arc::new(options.expect("a temporary file"));
    let mut other = Arc::clone(&file);
    file.write_all(b"shared").expect("written");
    other.seek(SeekFrom::Start(2)).expect("moved");
    let mut text = String::new();
    other.read_to_string(&mut text).expect("read");
    assert_eq!(text, "ared");
    assert_eq!(file.as_fd().as_raw_fd(), other.as_raw_fd());
    std::fs::remove_file(path).expect("removed");
}

#[cfg(feature = "serde")]
#[test]
fn serde_sees_the_value() {
    let list = Arc::<[i32]>::from([1, 2]);
    let text = serde_json::to_string(&(&list, &UniqueArc::new("x"))).expect("serialised");
    assert_eq!(text, r#"[[1,2],"x"]"#);
    assert_eq!(serde_json::from_str::<Arc<[i32]>>("[1,2]").expect("deserialised"), list);
    assert_eq!(&*serde_json::from_str::<Arc<str>>("\"x\"").expect("deserialised"), "x");
    assert_eq!(*serde_json::from_str::<UniqueArc<i32>>("5").expect("deserialised"), 5);
}

#[cfg(feature = "unsize")]
#[test]
fn unsizing_in_place() {
    use unsize::{CoerceUnsize, Coercion};

    let number = Arc::new(5);
    let address = Arc::as_ptr(&number).cast::<u8>();
    let shown: Arc<dyn Debug> = number.unsize(Coercion::to_debug());
    assert_eq!((format!("{shown:?}").as_str(), Arc::as_ptr(&shown).cast::<u8>()), ("5", address));
    let slice: Arc<[i32]> = Arc::new([1, 2]).unsize(Coercion::to_slice());
    assert_eq!(*slice, [1, 2]);
    let mut unique: UniqueArc<[i32]> = UniqueArc::new([2, 1]).unsize(Coercion::to_slice());
    unique.sort_unstable();
    assert_eq!(*unique.shareable(), [1, 2]);
}

#[cfg(feature = "allocator-api2")]
#[test]
fn allocators_of_allocator_api2() {
    use allocator_api2::alloc::{AllocError, Allocator};

    /// A bump allocator over a fixed buffer, used by reference.
    struct Bump {
        memory: std::cell::UnsafeCell<[u8; 256]>,
        used: std::cell::Cell<usize>,
    }

    // SAFETY: each call hands out a part of the buffer that no earlier one has; they stay valid while the buffer is borrowed.
    unsafe impl Allocator for &Bump {
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            let base = self.memory.get().cast::<u8>();
            let start = (base.addr() + self.used.get()).next_multiple_of(layout.align()) - base.addr();
            if start + layout.size() > 256 {
                return Err(AllocError);
            }
            self.used.set(start + layout.size());
            // SAFETY: inside the buffer, checked above.
            let pointer = unsafe { NonNull::new_unchecked(base.add(start)) };
            Ok(NonNull::slice_from_raw_parts(pointer, layout.size()))
        }

        unsafe fn deallocate(&self, _: NonNull<u8>, _: Layout) {}
    }

    let bump = Bump { memory: std::cell::UnsafeCell::new([0; 256]), used: std::cell::Cell::new(0) };
    let one = Arc::new_in(5, &bump);
    let two = Arc::clone(&one);
    let text = Arc::from_str_in("text", &bump);
    assert_eq!((*two, &*text), (5, "text"));
    assert!(bump.used.get() > 0);
    assert!(Arc::try_new_in([0_u8; 300], &bump).is_err());
}
