//! The command of a container. No image is ever pulled: a command runs on the host's file system, and well-known images
//! without a command are replaced by small servers of this program.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::mounts::PROGRAM;

/// Replaces this process by the command of an image. Returns only if that fails.
pub(crate) fn execute(image: &str, arguments: &[String]) -> anyhow::Error {
    match command(image, &[], arguments) {
        Ok(words) => match words.split_first() {
            Some((program, arguments)) => anyhow::Error::new(Command::new(program).args(arguments).exec())
                .context(format!("cannot run {program}")),
            None => anyhow::anyhow!("the image {image} has no command"),
        },
        Err(why) => anyhow::anyhow!(why),
    }
}

/// The command of an image, or an error that says what to do.
pub(crate) fn command(image: &str, command: &[String], arguments: &[String]) -> Result<Vec<String>, String> {
    if !command.is_empty() {
        return Ok([command, arguments].concat());
    }
    let flag = |name: &str| flag(arguments, name);
    match (short(image), arguments.first().map(String::as_str)) {
        ("nginx" | "httpd" | "caddy" | "whoami", _) => Ok(serve(&["--http", "80"])),
        ("agnhost", Some("netexec")) => {
            let (http, udp) = (flag("http-port").unwrap_or("8080"), flag("udp-port").unwrap_or("8081"));
            let at = flag("udp-listen-addresses").map_or_else(Vec::new, |addresses| vec!["--udp-at", addresses]);
            Ok(serve(&[&["--http", http, "--udp", udp], at.as_slice()].concat()))
        }
        ("agnhost", Some("serve-hostname")) => {
            let port = flag("port").unwrap_or("9376");
            Ok(serve(&["--http", port, "--udp", port]))
        }
        ("agnhost", None | Some("pause")) | ("pause", _) => Ok(mine(&["pause"])),
        ("antrea-lab", _) => Ok(mine(&arguments.iter().map(String::as_str).collect::<Vec<_>>())),
        // Without a terminal, the shell that is their command ends at once.
        ("busybox" | "alpine" | "debian" | "ubuntu", None) => Ok(vec!["sh".to_owned()]),
        ("busybox" | "alpine" | "debian" | "ubuntu", Some(_)) => Ok(arguments.to_vec()),
        _ => Err(format!(
            "the lab pulls no images: give the container a `command`, which runs on the host's file system, or use nginx, \
             httpd, busybox or agnhost (netexec, serve-hostname, pause) instead of {image}"
        )),
    }
}

fn mine(arguments: &[&str]) -> Vec<String> {
    [PROGRAM, "internal"].iter().chain(arguments).map(ToString::to_string).collect()
}

fn serve(arguments: &[&str]) -> Vec<String> {
    mine(&[&["serve"], arguments].concat())
}

/// The last part of an image name: `nginx` for `docker.io/library/nginx:1.27@sha256:...`.
fn short(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or(image);
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split(':').next().unwrap_or(last)
}

/// The value of `--name=value` or `--name value`.
fn flag<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let named = format!("--{name}");
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if *argument == named {
            return arguments.next().map(String::as_str);
        }
        if let Some(value) = argument.strip_prefix(&named).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(image: &str, with: &[&str], arguments: &[&str]) -> String {
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        match command(image, &owned(with), &owned(arguments)) {
            Ok(words) => words.join(" "),
            Err(why) => format!("error: {why}"),
        }
    }

    #[test]
    fn a_command_runs_with_any_image() {
        assert_eq!(text("example.com/x", &["sleep"], &["1"]), "sleep 1");
        assert_eq!(text("busybox", &[], &["sleep", "1"]), "sleep 1");
    }

    #[test]
    fn well_known_images_are_built_in_from_any_registry() {
        assert_eq!(
            text("docker.io/library/nginx:1.27@sha256:0", &[], &[]),
            format!("{PROGRAM} internal serve --http 80")
        );
        let agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.40";
        assert_eq!(
            text(agnhost, &[], &["netexec", "--http-port=80"]),
            format!("{PROGRAM} internal serve --http 80 --udp 8081")
        );
        assert_eq!(
            text(agnhost, &[], &["netexec", "--udp-listen-addresses=10.0.0.1,fd00::1"]),
            format!("{PROGRAM} internal serve --http 8080 --udp 8081 --udp-at 10.0.0.1,fd00::1")
        );
        let words = text("localhost:5000/agnhost", &[], &["serve-hostname", "--port", "5"]);
        assert_eq!(words, format!("{PROGRAM} internal serve --http 5 --udp 5"));
    }

    #[test]
    fn any_other_image_is_an_error_that_says_what_to_do() {
        let said = text("postgres:16", &[], &[]);
        assert!(said.starts_with("error: ") && said.contains("`command`") && said.contains("postgres:16"), "{said}");
    }
}
