"""Files as people write them: each with its exact reading, or with the exact sentence that refuses it."""

import gzip
import os
import sys
import threading
from io import BytesIO
from zipfile import ZipFile

import pytest

from overtone.tables.delimited import AS_FOUND, TextOptions
from overtone.tables.encode import Encoder
from overtone.tables.errors import TableError
from overtone.tables.read import read_table

FILES = {
    "commas": b"a,b\n1,x\n2,y\n",
    "semicolons": b"a;b\n1;x\n2;y\n",
    "tabs": b"a\tb\n1\tx\n2\ty\n",
    "bars": b"a|b\n1|x\n2|y\n",
    "quotes": b'"a";"b"\n"1";"x"\n"2";"y"\n',
    "carriage returns": b"a;b\r\n1;x\r\n2;y\r\n",
    "no last line end": b"a;b\n1;x\n2;y",
    "blank lines": b"a,b\n\n1,x\n\n2,y\n",
    "spaces in the header": b" a , b \n1,x\n2,y\n",
    "a mark of UTF-8": b"\xef\xbb\xbfa,b\n1,x\n2,y\n",
    "a mark and semicolons": b"\xef\xbb\xbfa;b\n1;x\n2;y\n",
    "UTF-16": "a\tb\n1\tx\n2\ty\n".encode("utf-16"),
    "UTF-16, the other way": b"\xfe\xff" + "a\tb\n1\tx\n2\ty\n".encode("utf-16-be"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv"])
def test_ordinary_files_are_read(name, suffix, tmp_path):
    path = tmp_path / f"table{suffix}"
    path.write_bytes(gzip.compress(FILES[name]) if suffix.endswith("gz") else FILES[name])
    assert read_table(path).to_dict(as_series=False) == {"a": ["1", "2"], "b": ["x", "y"]}


CONTENTS = {
    "semicolons and decimal commas": (b"a;b\n1,5;2,5\n", AS_FOUND, {"a": ["1,5"], "b": ["2,5"]}),
    "commas inside quotes": (b'a,b\n"1,5","2;5"\n', AS_FOUND, {"a": ["1,5"], "b": ["2;5"]}),
    "one column": (b"a b\n1 2\n", AS_FOUND, {"a b": ["1 2"]}),
    "one column of commas": (b"a\n1\n", TextOptions(";"), {"a": ["1"]}),
    "a sign of one's own": (b"a~b\n1~2\n", TextOptions("~"), {"a": ["1"], "b": ["2"]}),
    "semicolons in names": (b"a;x,b;y\n1,2\n3,4\n", AS_FOUND, {"a;x": ["1", "3"], "b;y": ["2", "4"]}),
    "Latin-1": ("a;ä\nü;ß\n".encode("latin-1"), AS_FOUND, {"a": ["ü"], "ä": ["ß"]}),
    "Windows-1252": ("a,b\n€,“x”\n".encode("cp1252"), AS_FOUND, {"a": ["€"], "b": ["“x”"]}),
    "Latin-2 by name": ("a,b\nł,1\n".encode("latin2"), TextOptions(encoding="latin2"), {"a": ["ł"], "b": ["1"]}),
    "UTF-8 by name, with a mark": (b"\xef\xbb\xbfa,b\n1,2\n", TextOptions(encoding="UTF8"), {"a": ["1"], "b": ["2"]}),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_cells_are_the_text_in_the_file(name, tmp_path):
    contents, options, expected = CONTENTS[name]
    (tmp_path / "t.csv").write_bytes(contents)
    assert read_table(tmp_path / "t.csv", options).to_dict(as_series=False) == expected


REFUSED_FILES = {
    "too few values": (b"a,b\n1,2\n3\n", {}, "t.csv, line 3: 1 value, but the header has 2 columns."),
    "UTF-16 without a mark": (
        "a,b\n1,2\n".encode("utf-16-le"),
        {},
        "t.csv: the first line is not text, unless it is UTF-16 or the like; name its --encoding.",
    ),
    "ragged semicolons": (b"a;b\n1;2\n1;2;3\n", {}, "t.csv, line 3: 3 values, but the header has 2 columns."),
    "two signs": (b"a,b\n1,2\n", {"delimiter": "::"}, "--delimiter must be one character, or tab; got '::'."),
    "no encoding": (
        b"a,b\n1,2\n",
        {"encoding": "elvish"},
        "--encoding 'elvish' is not known; try utf-8, latin-1, cp1252 or utf-16.",
    ),
    "no text encoding": (
        b"a,b\n1,2\n",
        {"encoding": "rot13"},
        "--encoding 'rot13' is not known; try utf-8, latin-1, cp1252 or utf-16.",
    ),
    "another encoding": (
        "a,b\nü,2\n".encode("latin-1"),
        {"encoding": "utf-8"},
        "t.csv: this file is not utf-8 text; name its encoding with --encoding.",
    ),
    "no encoding at all": (
        b"a,b\n\x81,\xff\n",
        {},
        "t.csv: this file is not cp1252 text; name its encoding with --encoding.",
    ),
}


@pytest.mark.parametrize("name", REFUSED_FILES)
def test_files_that_cannot_be_read_are_one_sentence(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    contents, options, sentence = REFUSED_FILES[name]
    (tmp_path / "t.csv").write_bytes(contents)
    with pytest.raises(TableError) as caught:
        read_table("t.csv", TextOptions(**options))
    assert str(caught.value) == sentence


def test_what_is_not_utf_8_is_said(tmp_path, caplog):
    caplog.set_level("INFO", "overtone")
    (tmp_path / "t.csv").write_bytes("a\nü\n".encode("latin-1"))
    read_table(tmp_path / "t.csv")
    assert [r.message.split("/")[-1] for r in caplog.records] == [
        "t.csv is not UTF-8 and is read as Windows-1252; --encoding changes this."
    ]


def workbook(cells: list[list[object]], *more_sheets: str) -> bytes:
    """Return an Excel file with text and numbers, written by hand."""
    rows = ""
    for number, row in enumerate(cells, 1):
        rows += f'<row r="{number}">'
        for letter, value in zip("ABCDEFG", row, strict=False):
            is_text = isinstance(value, str)
            kind, tag = (' t="inlineStr"', f"<is><t>{value}</t></is>") if is_text else ("", f"<v>{value}</v>")
            rows += f'<c r="{letter}{number}"{kind}>{tag}</c>' if value is not None else ""
        rows += "</row>"
    main_space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    names = ["Data", *more_sheets]
    sheets = "".join(f'<sheet name="{name}" sheetId="{i}" r:id="rId{i}"/>' for i, name in enumerate(names, 1))
    links = "".join(
        f'<Relationship Id="rId{i}" Type="{office}/worksheet" Target="worksheets/sheet{i}.xml"/>'
        for i in range(1, len(names) + 1)
    )
    stream = BytesIO()
    with ZipFile(stream, "w") as packed:
        kinds = "application/vnd.openxmlformats-officedocument.spreadsheetml"
        parts = "".join(
            f'<Override PartName="/xl/worksheets/sheet{i}.xml" ContentType="{kinds}.worksheet+xml"/>'
            for i in range(1, len(names) + 1)
        )
        packed.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType="application/vnd.'
            f'openxmlformats-package.relationships+xml"/><Override PartName="/xl/workbook.xml" ContentType="{kinds}.'
            f'sheet.main+xml"/>{parts}</Types>',
        )
        packed.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="rId1" Type="{office}/officeDocument" '
            f'Target="xl/workbook.xml"/></Relationships>',
        )
        packed.writestr(
            "xl/workbook.xml", f'<workbook {main_space} xmlns:r="{office}"><sheets>{sheets}</sheets></workbook>'
        )
        packed.writestr(
            "xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{package}/relationships">{links}</Relationships>'
        )
        for i in range(1, len(names) + 1):
            packed.writestr(
                f"xl/worksheets/sheet{i}.xml", f"<worksheet {main_space}><sheetData>{rows}</sheetData></worksheet>"
            )
    return stream.getvalue()


def test_excel_files_are_read(tmp_path, caplog):
    pytest.importorskip("fastexcel")
    caplog.set_level("INFO", "overtone")
    path = tmp_path / "t.xlsx"
    path.write_bytes(workbook([["x", "word"], [1 / 3, "a"], [2.5, "b"], [None, "c"]], "Notes"))
    assert read_table(path).to_dict(as_series=False) == {"x": [1 / 3, 2.5, None], "word": ["a", "b", "c"]}
    assert "t.xlsx has 2 sheets, of which the first, 'Data', is read." in caplog.records[0].message
    path.write_bytes(workbook([["x"], [1], [2], ["$5"]]))
    with pytest.raises(TableError, match=r"but row 3 has '\$5'"):
        Encoder.fit(read_table(path))
    for contents in (b"PK, and nothing else", workbook([["x"]])[:-30]):
        path.write_bytes(contents)
        with pytest.raises(TableError, match=r"t\.xlsx: the file is damaged or not an Excel file"):
            read_table(path)


def test_without_the_extra_excel_files_are_refused_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    (tmp_path / "t.xlsx").write_bytes(workbook([["x"], [1]]))
    with pytest.raises(TableError, match=r"fastexcel, .*; install overtone\[excel\], or save the sheet as CSV\.$"):
        read_table(tmp_path / "t.xlsx")


def test_hidden_files_and_folders_in_a_folder_are_no_parts(tmp_path):
    (tmp_path / "0.csv").write_text("a\n1\n")
    (tmp_path / "._0.csv").write_bytes(b"\0\5\26\7")  # as other systems leave them
    (tmp_path / "more.csv").mkdir()
    assert read_table(tmp_path)["a"].to_list() == ["1"]


def test_a_file_that_cannot_be_read_is_told_from_a_damaged_archive(tmp_path):
    os.mkfifo(tmp_path / "t.csv")
    writer = threading.Thread(target=(tmp_path / "t.csv").write_text, args=["a\n1\n"])
    writer.start()
    with pytest.raises(TableError, match=r"t\.csv: this file cannot be read \(.*not seekable"):
        read_table(tmp_path / "t.csv")
    writer.join()
    (tmp_path / "t.csv.gz").write_text("a\n1\n")
    with pytest.raises(TableError, match=r"t\.csv\.gz: this is not a gzip file, or a damaged one \(Not a gzipped"):
        read_table(tmp_path / "t.csv.gz")
