"""Pages, figures and exports of what an analysis found: files that open without network, server or notebook."""
