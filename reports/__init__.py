"""Reports: the HTML page, the terminal tables and the README's figure, all made from `perfmodel` records alone.

Nothing here measures or predicts; a number on the page is a number of a record, rounded by `perfmodel.units`.
"""
