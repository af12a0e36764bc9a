// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The table from outside. One test: the caches are one per process, and it counts what is left in them.

use fastpath_example_file_table::{
    Error, FileTable, MAX_CONTENTS, MAX_NAME, Names, live_inodes, live_open_files,
};

static NAMES: Names = Names::new();

#[test]
fn files_live_as_long_as_somebody_uses_them() {
    // Names.
    assert_eq!(NAMES.create("one", b"1"), Ok(()));
    assert_eq!(NAMES.create("one", b"2"), Err(Error::Exists));
    assert_eq!(NAMES.create(&"x".repeat(MAX_NAME + 1), b""), Err(Error::TooLong));
    assert_eq!(NAMES.create("long", &[0; MAX_CONTENTS + 1]), Err(Error::TooLong));
    assert_eq!(NAMES.find("two").map(|_| ()), Err(Error::NotFound));
    assert_eq!(NAMES.remove("two"), Err(Error::NotFound));

    // The smallest free number, and none beyond the last.
    let table = FileTable::new(&NAMES);
    let open: Vec<_> = (0..64).map(|_| table.open("one").expect("free numbers")).collect();
    assert_eq!(table.open("one").map(|_| ()), Err(Error::Full));
    table.close(open[7]).expect("open");
    assert_eq!(table.close(open[7]), Err(Error::NotFound));
    assert_eq!(table.open("one"), Ok(open[7]));

    // Each opening has its own position, and removal takes only the name.
    NAMES.remove("one").expect("there");
    let mut buffer = [0; 4];
    assert_eq!((table.read(open[0], &mut buffer), buffer[0]), (Ok(1), b'1'));
    assert_eq!(table.read(open[0], &mut buffer), Ok(0));
    assert_eq!(table.read(open[1], &mut buffer), Ok(1));
    assert_eq!(live_inodes(), 1);
    drop(table);
    assert_eq!((live_open_files(), live_inodes()), (0, 0));

    // Threads on one table and one file, while it comes and goes.
    let table = FileTable::new(&NAMES);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let Ok(file) = table.open("busy") else { continue };
                    let mut buffer = [0; 3];
                    assert_eq!((table.read(file, &mut buffer), &buffer), (Ok(3), b"abc"));
                    table.close(file).expect("ours alone");
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..500 {
                NAMES.create("busy", b"abc").expect("room");
                std::thread::yield_now();
                NAMES.remove("busy").expect("there");
            }
        });
    });
    assert_eq!((live_open_files(), live_inodes()), (0, 0));
}
