"""SVG charts, rendered in Python with the standard library only. One module per kind of chart.

A chart is an `<svg>` element as text, for a page that includes charts.css. It is as wide as its container, has a fixed
height, and needs no script. It has no style attributes, so it works under a strict Content-Security-Policy. All texts
are escaped. Each chart has a `<title>` and a `<desc>` for screen readers, whose ids start with the `name` of the chart.
"""
