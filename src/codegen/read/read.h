// Reading files that people already have: the fifth walk over the key tables. A file is read as the plan fields for which the table
// would write just this file:
//   - Fields that the table's conditions ask about take every value of their domain; the combination under which most keys of the file
//     are what the table writes wins. Of several the first in the order of the domains wins (domains.cc lists them:
//     ddp before zero1 before zero2 before zero3, so accelerate's SHARD_GRAD_OP is zero2, not zero3 with parameters kept).
//   - A field is *carried* when the file settles it: when some value of it would explain fewer keys.
//   - Rows with a field are read backwards, through their value map: the first entry that maps to the file's text.
//   - `reads` rows of a table say what else a key can hold (templates/README.md).
// Every key of a file is carried, the same in every plan, or in `lost` with the reason.
// Left out: files that a file names (they are given beside it), and programs (a value that only a running shell knows is in `lost`).
#pragma once
#include "codegen/read/merge.h"
#include "codegen/read/read_file.h"
#include "codegen/read/reading.h"
#include "codegen/read/settings.h"
#include "codegen/read/settle.h"
#include "codegen/read/to_write.h"
