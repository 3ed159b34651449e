//! The images that sandboxes are made from, in the runtime's verbose answers.

use crisweep_proto::cri;

/// Places of the sandbox image in the runtime's configuration.
const SANDBOX_IMAGE_PATHS: [&str; 4] = [
    "/sandboxImage",
    "/pinnedImages/sandbox",
    "/imageConfig/pinnedImages/sandbox",
    "/images/pinnedImages/sandbox",
];

/// Reads the sandbox image from the runtime's own configuration (JSON): containerd 1.x and CRI-O have it at the
/// top level, containerd 2.x among its pinned images.
pub(super) fn sandbox_images(config: &str) -> Vec<String> {
    let Ok(config) = serde_json::from_str::<serde_json::Value>(config) else {
        return Vec::new();
    };
    let mut images = Vec::new();
    for path in SANDBOX_IMAGE_PATHS {
        let image = config.pointer(path).and_then(serde_json::Value::as_str);
        if let Some(image) = image.filter(|image| !image.is_empty())
            && !images.iter().any(|known| known == image)
        {
            images.push(image.to_owned());
        }
    }
    images
}

/// Reads the image of a sandbox from its verbose status (JSON); `None` if it is missing.
pub(crate) fn made_from(raw: &cri::PodSandboxStatusResponse) -> Option<String> {
    let info: serde_json::Value = serde_json::from_str(raw.info.get("info")?).ok()?;
    let image = info.get("image")?.as_str()?;
    (!image.is_empty()).then(|| image.to_owned())
}
