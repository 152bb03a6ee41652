// Text that looks like a secret. Scripts, manifests and site files are read by others, so such text is refused wherever it would be
// written. Errs on the side of refusing: by the name it is assigned to, or by the prefix its kind is known by.
#pragma once
#include <string>
#include <string_view>

namespace distsetup {

// The name or the kind of the first secret in `text` ("HF_TOKEN", "a token that begins with hf_"); empty when there is none. A value
// that is read from somewhere ("$TOKEN", "$(cat file)") is none.
std::string secret_in(std::string_view text);

}  // namespace distsetup
