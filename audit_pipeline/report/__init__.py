"""The report: pages with sentences, tables and pictures of the warehouse's contents.

This package contains the report's sections, sentences, pictures, rendering and JSON copy. Metrics are computed in
statistics/. SQL for users is in warehouse/.
"""
