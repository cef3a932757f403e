//! Which directories are opened, created and refused, and what is left in those that are refused.

use std::{
    fs,
    path::{Path, PathBuf},
};

use drtm_txn::{Builder, Db, Error, LogError, Raw, TableDef};

const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");

/// A path that is removed with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = Self(std::env::temp_dir().join(format!("drtm-opening-{name}-{}", std::process::id())));
        drop(fs::remove_dir_all(&place.0));
        place
    }

    fn at(&self) -> Builder {
        Builder::new().memory(16 << 20).path(&self.0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn names(directory: &Path) -> Vec<String> {
    let files = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<_> = files.map(|file| file.expect("a file").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

#[track_caller]
fn log_error<T: std::fmt::Debug>(opened: Result<T, Error>) -> LogError {
    match opened {
        Err(Error::Log(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Opening creates nothing unless it is told to, and the error says how.
#[test]
fn a_database_is_created_only_on_request() -> Result<(), Error> {
    let place = Place::new("absent");
    let absent = log_error(Db::open(&place.0));
    assert!(matches!(absent, LogError::NoDatabase { .. }));
    let said = absent.to_string();
    assert!(said.contains(&place.0.display().to_string()) && said.contains("`Db::create`"), "{said}");
    assert!(said.contains("Builder::create(true)"), "{said}");
    assert!(!place.0.exists());

    fs::create_dir(&place.0).expect("space");
    for refused in [place.at().build(), place.at().create(false).build(), place.at().create_new(false).build()] {
        assert!(matches!(log_error(refused), LogError::NoDatabase { .. }));
    }
    assert_eq!(names(&place.0), Vec::<String>::new(), "not even the lock");

    // With the parents of its directory.
    let nested = Place(place.0.join("of").join("shop"));
    let db = nested.at().create(true).build()?;
    let notes = db.table(NOTES)?;
    db.transact(|tx| tx.put(notes, 1, b"kept"))?;
    drop(db);
    for open in [Db::open, Db::create] {
        let db = open(nested.0.clone())?;
        let notes = db.table(NOTES)?;
        assert_eq!(db.read(|tx| tx.get(notes, 1))?.as_deref(), Some(&b"kept"[..]));
    }
    let exists = log_error(nested.at().create_new(true).build());
    assert!(matches!(exists, LogError::DatabaseExists { .. }) && exists.to_string().contains("`Db::open`"), "{exists}");
    let before = names(&nested.0);
    assert!(before.iter().any(|name| name.ends_with(".log")), "{before:?}");
    Ok(())
}

#[test]
fn a_new_database_is_new() -> Result<(), Error> {
    let place = Place::new("new");
    let db = place.at().create_new(true).build()?;
    assert!(matches!(log_error(place.at().create_new(true).build()), LogError::DatabaseExists { .. }));
    drop(db);
    // A lock and a segment that was never finished are no database.
    for name in names(&place.0).into_iter().filter(|name| name.ends_with(".log")) {
        fs::rename(place.0.join(&name), place.0.join(format!("{name}.new"))).expect("it is there");
    }
    assert!(matches!(log_error(Db::open(&place.0)), LogError::NoDatabase { .. }));
    drop(place.at().create_new(true).build()?);
    assert!(names(&place.0).iter().all(|name| !name.ends_with(".new")), "{:?}", names(&place.0));
    Ok(())
}

/// A directory of other files is left as it is, and the error names some of them.
#[test]
fn a_directory_of_other_files_is_refused() -> Result<(), Error> {
    let place = Place::new("foreign");
    fs::create_dir(&place.0).expect("space");
    let own = ["LOCK", "thesis.txt", "0.log", "1.checkpoint"];
    for name in own {
        fs::write(place.0.join(name), name).expect("space");
    }
    let before = names(&place.0);
    for opened in [Db::open(&place.0), Db::create(&place.0), place.at().create_new(true).build()] {
        match log_error(opened) {
            ref error @ LogError::Foreign { ref files, .. } => {
                let mut files = files.clone();
                files.sort();
                assert_eq!(files, ["0.log", "1.checkpoint", "thesis.txt"]);
                let said = error.to_string();
                assert!(said.contains("thesis.txt") && said.contains("choose another directory"), "{said}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(names(&place.0), before);
    }
    assert_eq!(fs::read(place.0.join("LOCK")).expect("it is there"), b"LOCK");

    // Many files are not all named.
    (0..100).for_each(|file| fs::write(place.0.join(format!("file {file}")), b"").expect("space"));
    let said = log_error(Db::create(&place.0)).to_string();
    assert!(said.len() < 500, "{said}");
    Ok(())
}

/// What the file system or a tool has put beside a database does not keep it from being opened, and
/// stays.
#[test]
fn files_beside_a_database_stay() -> Result<(), Error> {
    let place = Place::new("beside");
    drop(Db::create(&place.0)?);
    fs::create_dir(place.0.join("lost+found")).expect("space");
    fs::write(place.0.join("notes.new"), b"mine").expect("space");
    let db = Db::open(&place.0)?;
    db.checkpoint()?;
    drop(db);
    assert_eq!(fs::read(place.0.join("notes.new")).expect("it is there"), b"mine");
    assert!(place.0.join("lost+found").is_dir());
    Ok(())
}

#[test]
fn a_file_is_no_directory() {
    let place = Place::new("file");
    let file = Place(place.0.with_extension("txt"));
    fs::write(&file.0, b"text").expect("space");
    for opened in [Db::open(&file.0), Db::create(&file.0)] {
        let said = log_error(opened).to_string();
        assert!(said.contains("name a directory, not a file"), "{said}");
    }
    assert_eq!(fs::read(&file.0).expect("it is there"), b"text");
    fs::remove_file(&file.0).expect("it is there");
}
