//! Installs the CNI plugin and its network configuration for container runtimes.
//!
//! Each file is replaced atomically, since runtimes may read it at any time. The configuration is written last, since it makes
//! runtimes call the plugins. Foreign files are left alone: a Node that has chained plugins of its own keeps them.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use api::cni::{DEFAULT_SOCKET, Version};
use serde_json::json;

/// File name of the plugin, and its `type` in the configuration.
pub(crate) const PLUGIN: &str = "antrea";
/// Plugins that runtimes call after ours, and the one that containerd calls for every Pod's loopback interface.
pub(crate) const CHAINED: [&str; 3] = ["bandwidth", "loopback", "portmap"];
/// Runtimes use the first file of the directory.
pub(crate) const CONFIGURATION: &str = "10-antrea.conflist";
/// File of older versions of Antrea, which runtimes would use instead.
const OLD_CONFIGURATION: &str = "10-antrea.conf";
/// The newest version that all current runtimes, portmap and bandwidth support; it has CHECK.
const VERSION: Version = Version::V0_4_0;

/// What to install, and where.
pub(crate) struct Installation<'a> {
    /// Path of the program antrea-cni.
    pub(crate) plugin: &'a Path,
    /// Directory with the chained plugins to install where the Node has none.
    pub(crate) chained: Option<&'a Path>,
    /// Directory of CNI plugins.
    pub(crate) bin_dir: &'a Path,
    /// Directory of CNI configurations.
    pub(crate) conf_dir: &'a Path,
    /// Path of the agent's CNI socket.
    pub(crate) socket: &'a Path,
}

/// What was done with a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Created, or written with new contents.
    Written(PathBuf),
    /// Already had the right contents and mode.
    Kept(PathBuf),
    /// Another program has installed it.
    Foreign(PathBuf),
    Removed(PathBuf),
}

/// A failed file operation, with a hint.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {what}: {error}; {}", path.display(), self.fix())]
pub(crate) struct InstallError {
    path: PathBuf,
    what: &'static str,
    fix: &'static str,
    error: io::Error,
}

impl InstallError {
    fn fix(&self) -> &'static str {
        match self.error.kind() {
            io::ErrorKind::StorageFull => "free space on this disk of the Node; the next attempt continues",
            _ => self.fix,
        }
    }
}

impl Installation<'_> {
    /// Installs missing or outdated files, and returns what was done with each.
    pub(crate) fn install(&self) -> Result<Vec<Change>, InstallError> {
        let plugin = read(self.plugin, "--plugin must be the path of the program antrea-cni")?;
        let fix = "--bin-dir must be the container runtime's CNI plugin directory";
        let mut changes = vec![put(&self.bin_dir.join(PLUGIN), &plugin, 0o755, fix)?];
        for name in CHAINED {
            let Some(directory) = self.chained else { break };
            let plugin =
                read(&directory.join(name), "--chained must be a directory with bandwidth, loopback and portmap")?;
            let path = self.bin_dir.join(name);
            changes.push(match fs::read(&path) {
                Ok(found) if found != plugin => Change::Foreign(path),
                _ => put(&path, &plugin, 0o755, fix)?,
            });
        }
        changes.push(put(
            &self.conf_dir.join(CONFIGURATION),
            configuration(self.socket).as_bytes(),
            0o644,
            "--conf-dir must be the container runtime's CNI configuration directory",
        )?);
        let old = self.conf_dir.join(OLD_CONFIGURATION);
        match fs::remove_file(&old) {
            Ok(()) => changes.push(Change::Removed(old)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let fix = "the container runtime prefers it to the new file, so remove it by hand";
                return Err(InstallError { path: old, what: "remove", fix, error });
            }
        }
        Ok(changes)
    }
}

fn read(plugin: &Path, fix: &'static str) -> Result<Vec<u8>, InstallError> {
    fs::read(plugin).map_err(|error| InstallError { path: plugin.to_owned(), what: "read the plugin", fix, error })
}

/// The network configuration: antrea first, then the chained plugins.
fn configuration(socket: &Path) -> String {
    let mut antrea = json!({"type": PLUGIN, "ipam": {"type": "host-local"}});
    if socket != Path::new(DEFAULT_SOCKET) {
        antrea["socket"] = json!(socket);
    }
    let list = json!({
        "cniVersion": VERSION.as_str(),
        "name": "antrea",
        "plugins": [
            antrea,
            {"type": "portmap", "capabilities": {"portMappings": true}},
            {"type": "bandwidth", "capabilities": {"bandwidth": true}},
        ],
    });
    format!("{list:#}\n")
}

/// Replaces a file atomically, unless it already has these contents and this mode.
fn put(path: &Path, contents: &[u8], mode: u32, fix: &'static str) -> Result<Change, InstallError> {
    let same = fs::read(path).is_ok_and(|found| found == contents)
        && fs::symlink_metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o7777 == mode);
    if same {
        return Ok(Change::Kept(path.to_owned()));
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    let failed = |what| move |error| InstallError { path: path.to_owned(), what, fix, error };
    DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(failed("create its directory"))?;
    // Runtimes ignore this suffix.
    let mut file = tempfile::Builder::new()
        .prefix(".antrea-")
        .suffix(".tmp")
        .tempfile_in(directory)
        .map_err(failed("write to its directory"))?;
    let filled = file
        .as_file_mut()
        .write_all(contents)
        .and_then(|()| file.as_file().set_permissions(Permissions::from_mode(mode)))
        // A crash must not leave the name without the contents.
        .and_then(|()| file.as_file().sync_all());
    filled.map_err(failed("write"))?;
    file.persist(path).map_err(|error| failed("put the new file in place")(error.error))?;
    fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed("sync its directory"))?;
    Ok(Change::Written(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use testkit::Scratch;

    use super::*;

    struct Machine(Scratch);

    impl Machine {
        fn new() -> Self {
            let machine = Self(Scratch::new().unwrap());
            fs::write(machine.path("antrea-cni"), "a program").unwrap();
            machine
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn install(&self) -> Result<Vec<Change>, InstallError> {
            self.install_with(Path::new(DEFAULT_SOCKET))
        }

        fn install_with(&self, socket: &Path) -> Result<Vec<Change>, InstallError> {
            let (plugin, bin_dir, conf_dir) = (self.path("antrea-cni"), self.path("opt/bin"), self.path("etc/net.d"));
            Installation { plugin: &plugin, chained: None, bin_dir: &bin_dir, conf_dir: &conf_dir, socket }.install()
        }

        /// Installs with chained plugins from the directory `image`.
        fn install_chained(&self) -> Result<Vec<Change>, InstallError> {
            let [plugin, chained, bin_dir, conf_dir] =
                ["antrea-cni", "image", "opt/bin", "etc/net.d"].map(|name| self.path(name));
            let socket = Path::new(DEFAULT_SOCKET);
            Installation { plugin: &plugin, chained: Some(&chained), bin_dir: &bin_dir, conf_dir: &conf_dir, socket }
                .install()
        }

        fn files(&self, directory: &str) -> Vec<String> {
            let entries = fs::read_dir(self.path(directory)).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn plugin_and_configuration_are_written_once() {
        let machine = Machine::new();
        let (plugin, conflist) = (machine.path("opt/bin/antrea"), machine.path("etc/net.d/10-antrea.conflist"));
        assert_eq!(machine.install().unwrap(), [Change::Written(plugin.clone()), Change::Written(conflist.clone())]);
        assert_eq!((fs::read(&plugin).unwrap(), mode(&plugin), mode(&conflist)), (b"a program".to_vec(), 0o755, 0o644));
        assert_eq!(machine.install().unwrap(), [Change::Kept(plugin.clone()), Change::Kept(conflist)]);
        fs::set_permissions(&plugin, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(machine.install().unwrap()[0], Change::Written(plugin.clone()));
        assert_eq!(mode(&plugin), 0o755);
        assert_eq!(
            (machine.files("opt/bin"), machine.files("etc/net.d")),
            (vec!["antrea".into()], vec!["10-antrea.conflist".into()])
        );
    }

    #[test]
    fn antrea_is_the_first_plugin_of_the_chain() {
        let machine = Machine::new();
        machine.install_with(Path::new("/run/node-2/cni.sock")).unwrap();
        let text = fs::read(machine.path("etc/net.d/10-antrea.conflist")).unwrap();
        let list: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let types: Vec<_> =
            list["plugins"].as_array().unwrap().iter().map(|plugin| plugin["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["antrea", "portmap", "bandwidth"]);
        assert_eq!(list["plugins"][0]["socket"], "/run/node-2/cni.sock");
        assert_eq!((&list["name"], &list["cniVersion"]), (&json!("antrea"), &json!("0.4.0")));
        machine.install().unwrap();
        let text = fs::read_to_string(machine.path("etc/net.d/10-antrea.conflist")).unwrap();
        assert!(!text.contains("socket"), "{text}");
    }

    #[test]
    fn foreign_files_are_left_alone_and_the_old_configuration_is_removed() {
        let machine = Machine::new();
        fs::create_dir_all(machine.path("etc/net.d")).unwrap();
        for (name, text) in [("00-other.conflist", "other"), ("10-antrea.conf", "old"), ("10-antrea.conflist", "torn")]
        {
            fs::write(machine.path("etc/net.d").join(name), text).unwrap();
        }
        let old = machine.path("etc/net.d/10-antrea.conf");
        assert_eq!(machine.install().unwrap().last(), Some(&Change::Removed(old)));
        assert_eq!(machine.files("etc/net.d"), ["00-other.conflist", "10-antrea.conflist"]);
        assert_eq!(fs::read(machine.path("etc/net.d/00-other.conflist")).unwrap(), b"other");
    }

    #[test]
    fn chained_plugins_are_installed_where_the_node_has_none() {
        let machine = Machine::new();
        fs::create_dir_all(machine.path("image")).unwrap();
        fs::create_dir_all(machine.path("opt/bin")).unwrap();
        for name in CHAINED {
            fs::write(machine.path("image").join(name), format!("our {name}")).unwrap();
        }
        fs::write(machine.path("opt/bin/portmap"), "that of the Node").unwrap();
        let changes = machine.install_chained().unwrap();
        let [bandwidth, loopback, portmap] = CHAINED.map(|name| machine.path("opt/bin").join(name));
        assert_eq!(
            changes[1..4],
            [Change::Written(bandwidth.clone()), Change::Written(loopback.clone()), Change::Foreign(portmap.clone())]
        );
        assert_eq!((fs::read(&bandwidth).unwrap(), mode(&bandwidth)), (b"our bandwidth".to_vec(), 0o755));
        assert_eq!(fs::read(&portmap).unwrap(), b"that of the Node");
        assert_eq!(machine.install_chained().unwrap()[2], Change::Kept(loopback));

        fs::remove_file(machine.path("image/loopback")).unwrap();
        let error = machine.install_chained().unwrap_err().to_string();
        assert!(error.contains("image/loopback: cannot read the plugin") && error.contains("--chained"), "{error}");
    }

    #[test]
    fn a_running_plugin_can_be_replaced() {
        let machine = Machine::new();
        fs::create_dir_all(machine.path("opt/bin")).unwrap();
        fs::copy("/bin/sleep", machine.path("opt/bin/antrea")).unwrap();
        let mut command = std::process::Command::new(machine.path("opt/bin/antrea"));
        command.arg("60");
        let running = testkit::Process::spawn(command).unwrap();
        machine.install().unwrap();
        assert_eq!(fs::read(machine.path("opt/bin/antrea")).unwrap(), b"a program");
        drop(running);
    }

    #[test]
    fn a_failure_names_the_path_and_a_fix_and_keeps_the_old_file() {
        let machine = Machine::new();
        machine.install().unwrap();
        fs::remove_file(machine.path("antrea-cni")).unwrap();
        let error = machine.install().unwrap_err().to_string();
        assert!(
            error.contains("antrea-cni: cannot read the plugin: No such file") && error.contains("--plugin"),
            "{error}"
        );
        assert_eq!(fs::read(machine.path("opt/bin/antrea")).unwrap(), b"a program");

        let machine = Machine::new();
        fs::write(machine.path("opt"), "a file in the way").unwrap();
        let error = machine.install().unwrap_err().to_string();
        assert!(
            error.contains("opt/bin/antrea: cannot create its directory") && error.contains("--bin-dir"),
            "{error}"
        );

        let machine = Machine::new();
        fs::create_dir_all(machine.path("etc/net.d/10-antrea.conflist")).unwrap();
        let error = machine.install().unwrap_err().to_string();
        assert!(error.contains("cannot put the new file in place: Is a directory"), "{error}");
        assert_eq!(machine.files("etc/net.d"), ["10-antrea.conflist"]);
    }
}
