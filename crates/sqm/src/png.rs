//! Renders pictures as PNG.

use sqm_process::failure::Failure;

/// Renders an SVG at twice its size, to be sharp on paper and on high-resolution screens.
#[cfg(feature = "png")]
pub(crate) fn render(svg: &str) -> Result<Vec<u8>, Failure> {
    use anyhow::Context as _;
    use resvg::{tiny_skia, usvg};

    const SCALE: f32 = 2.0;
    let mut options = usvg::Options::default();
    options.fontdb_mut().load_system_fonts();
    if options.fontdb.is_empty() {
        let error = anyhow::anyhow!(
            "cannot draw text, because this machine has no fonts: install one (Debian: fonts-dejavu-core), or use SVG"
        );
        return Err(Failure::Unsupported(error));
    }
    // The pictures ask for the generic font of the system, which `usvg` cannot resolve. Use the first of these that
    // is installed.
    for family in ["DejaVu Sans", "Noto Sans", "Liberation Sans"] {
        let query = usvg::fontdb::Query {
            families: &[usvg::fontdb::Family::Name(family)],
            ..Default::default()
        };
        if options.fontdb.query(&query).is_some() {
            options.fontdb_mut().set_sans_serif_family(family);
            break;
        }
    }
    let tree = usvg::Tree::from_str(svg, &options).context("cannot read the picture")?;
    let size = tree
        .size()
        .to_int_size()
        .scale_by(SCALE)
        .context("the picture has no size")?;
    let mut pixels =
        tiny_skia::Pixmap::new(size.width(), size.height()).context("the picture is too large")?;
    let scale = tiny_skia::Transform::from_scale(SCALE, SCALE);
    resvg::render(&tree, scale, &mut pixels.as_mut());
    Ok(pixels.encode_png().context("cannot encode the picture")?)
}

/// Stands in if the feature `png` is missing.
#[cfg(not(feature = "png"))]
pub(crate) fn render(_svg: &str) -> Result<Vec<u8>, Failure> {
    Err(Failure::Unsupported(anyhow::anyhow!(
        "this sqm was built without PNG; use SVG"
    )))
}
