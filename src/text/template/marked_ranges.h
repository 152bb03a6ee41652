// Where the assistant's messages are in a conversation whose template writes earlier turns differently from the last one (Qwen 3
// leaves out their reasoning), so that beginnings of the conversation do not begin the whole.
#pragma once
#include <string>
#include <vector>

#include "text/template/part_renderer.h"

namespace distsetup {

// Of each message of the assistant the bytes of `whole` (the conversation rendered) that it wrote. Proven for this conversation: it is
// rendered again with marks around what each message says, and must be the same text but for them, each mark there once and in
// order. In front of what a message says come what ends the message before it and what asks for this one, the generation prompt or the
// beginning of it; what the template writes behind that, as an empty block of reasoning, is the message's. Behind it comes what ends
// the message when it is the last one, which must be there in the whole as well. Errors: any of this does not hold; a message of the
// assistant, or the one before it, says nothing.
Result<std::vector<ByteRange>> marked_ranges(const PartRenderer& renderer, const std::string& whole);

}  // namespace distsetup
