"""Word files (.docx).

mammoth knows the format: content controls, text boxes and accepted insertions are read, deletions and comments are not.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from xml.etree.ElementTree import ParseError
from xml.parsers.expat import ExpatError

import mammoth
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.readers.whole_files.document import MEBIBYTE, NO_LINES, NoTextError, WholeDocument
from audit_pipeline.readers.whole_files.xhtml_text import extract_prose

# A file that Word has locked is no zip file but one of these, with the zip file encrypted in it.
_LOCKED = bytes.fromhex("D0CF11E0A1B11AE1")
_MOST_XML = 64 * MEBIBYTE
_PROPERTIES = "docProps/core.xml"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"


def read_docx(path: Path) -> WholeDocument:
    """The running text of a Word file, paragraphs parted by an empty line, footnotes after the text.

    Raises NoTextError where a password locks it, and DataError where it is damaged, or too large to be a text.
    """
    content = path.read_bytes()
    if content.startswith(_LOCKED):
        raise NoTextError(f"{path}: locked with a password, or a .doc of old under another name; save a .docx without")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            markup = sum(member.file_size for member in archive.infolist() if member.filename.endswith(".xml"))
        if markup > _MOST_XML:
            raise DataError(f"{path}: unpacks to more than a text takes")
        without_pictures = mammoth.images.img_element(lambda image: {})
        converted = mammoth.convert_to_html(
            io.BytesIO(content), convert_image=without_pictures, external_file_access=False
        )
    except (zipfile.BadZipFile, zlib.error, ExpatError, OSError, KeyError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: damaged, or not a Word file ({to_one_line(error)})") from error
    except (AttributeError, IndexError, TypeError) as error:
        # mammoth meets a file without the parts that each Word file has in this way.
        raise DataError(f"{path}: not a Word file as Word writes them ({to_one_line(error)})") from error
    return WholeDocument(extract_prose(converted.value).text, _title(content), places=NO_LINES)


def _title(content: bytes) -> str | None:
    """The title among the file's properties; None where there is none, or the properties are damaged."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if _PROPERTIES not in archive.namelist():
            return None
        try:
            return fromstring(archive.read(_PROPERTIES), forbid_dtd=True).findtext(_TITLE)
        except (ParseError, DefusedXmlException, ValueError, LookupError):
            return None
