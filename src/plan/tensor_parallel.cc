#include "plan/tensor_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace distsetup {
namespace {

bool is_split_symbol(std::string_view word) { return word == "a" || word == "kv" || word == "f" || word == "V"; }

std::vector<std::string> words_of(std::string_view expression) {
  std::vector<std::string> words(1);
  for (const char c : expression) {
    const bool inside = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    if (inside)
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// "a*(dn+dv)" -> "a*": without sums of what all ranks have alike, which are a factor as any other.
std::string without_common_sums(std::string size) {
  for (size_t open = size.find('('); open != std::string::npos; open = size.find('(', open + 1)) {
    const size_t close = size.find_first_of("()", open + 1);
    if (close == std::string::npos || size[close] == '(') continue;
    const std::vector<std::string> words = words_of(std::string_view(size).substr(open, close - open));
    if (std::none_of(words.begin(), words.end(), is_split_symbol)) size.erase(open, close + 1 - open);
  }
  return size;
}

// "kv*d": one of the symbols times what all ranks have alike.
bool is_one_matrix(const std::string& whole) {
  const std::string size = without_common_sums(whole);
  if (size.find_first_of("+-/,(") != std::string::npos) return false;
  const std::vector<std::string> words = words_of(size);
  const auto is_number = [](const std::string& w) { return std::isdigit(static_cast<unsigned char>(w.front())) != 0; };
  return std::count_if(words.begin(), words.end(), is_split_symbol) == 1 && std::none_of(words.begin(), words.end(), is_number);
}

bool is_full(const std::string& tensor, ProgramBuilder& b) {
  const std::vector<std::string>& shape = b.shape(tensor);
  return !shape.empty() && shape[0] == "T";
}

std::string gathered(const Op& op, const std::string& tensor, ProgramBuilder& b) {
  if (is_full(tensor, b)) return tensor;
  const std::string all = tensor + "_all";
  if (b.has(all)) return all;
  Op gather;
  gather.name = op.name + "_gather";
  gather.kernel = "all_gather";
  gather.reads = {tensor};
  gather.writes = {all};
  b.add(std::move(gather));
  return all;
}

// What `op` makes is this rank's part of a sum.
void add_partial(Op op, ProgramBuilder& b, const AroundProduct& around) {
  const bool adds = op.kernel == "linear_add";
  Op scatter;
  scatter.name = op.name + "_scatter";
  scatter.kernel = adds ? "reduce_scatter_add" : "reduce_scatter";
  scatter.reads = {op.writes[0] + "_part"};
  if (adds) scatter.reads.push_back(op.reads[2]);
  scatter.writes = {op.writes[0], "recv_" + op.name};
  op.writes[0] += "_part";
  if (adds) {
    op.kernel = "linear";
    op.reads.pop_back();
  }
  b.add(around.prepare(std::move(op)));
  if (around.beside) around.beside(scatter.reads[0]);
  b.add(std::move(scatter));
}

void add_product(Op op, ProgramBuilder& b, const AroundProduct& around) {
  const int split = b.split(op.reads[1]);
  if (split == 1) {
    if (!is_full(op.reads[0], b)) b.fail(fmt::format("op '{}' reads '{}', expected a tensor with all tokens", op.name, op.reads[0]));
    return add_partial(std::move(op), b, around);
  }
  const std::string product = op.writes[0];
  if (split == 0) {
    if (op.kernel != "linear") b.fail(fmt::format("op '{}' adds to what is split", op.name));
    op.reads[0] = gathered(op, op.reads[0], b);
  }
  b.add(around.prepare(std::move(op)));
  if (around.beside) around.beside(product);
}

// Every head reads the latent and the rotary key beside it, of all tokens.
void gather_latent(Op& op, ProgramBuilder& b) {
  for (std::string& r : op.reads)
    if (op.kernel == "latent_part" || op.kernel == "latent_heads") r = gathered(op, r, b);
}

// Its weight is on each rank, though it sees all tokens: the gradient that comes to it is of the rank's own heads, one part of a sum.
bool is_norm_of_heads(const Op& op, ProgramBuilder& b) {
  if (op.kernel == "qk_norm") return true;
  const Op* writer = b.writer(op.reads[0]);
  return writer != nullptr && writer->kernel == "latent_part";
}

void add_loss(const Op& op, ProgramBuilder& b) {
  Op local = op, gather;
  local.name += "_local";
  local.kernel = "cross_entropy_local";
  local.reads = {op.reads[0], op.reads[1]};
  local.writes = {"row_stats"};
  gather.name = op.name + "_gather";
  gather.kernel = "all_gather";
  gather.reads = local.writes;
  gather.writes = {"row_stats_all"};
  Op finish = op;
  finish.kernel = "cross_entropy_finish";
  finish.reads = {op.reads[0], op.reads[1], "row_stats_all", op.reads[2], op.reads[3]};
  b.add(std::move(local));
  b.add(std::move(gather));
  b.add(std::move(finish));
}

// The z-loss is of the tokens of all ranks; each rank has the gradient of its own (z_loss_adjoint).
void add_z_loss(Op op, ProgramBuilder& b) {
  const std::string own = op.reads[0];
  op.kernel = "router_z_loss_of_all";
  op.reads[0] = gathered(op, own, b);
  op.reads.push_back(own);
  b.add(std::move(op));
}

// The load-balancing loss is of the tokens of all ranks.
void add_balance_loss(Op op, ProgramBuilder& b) {
  Op gather, sum;
  gather.name = op.name + "_gather";
  gather.kernel = "gather_routes";
  gather.reads = {op.reads[0]};
  gather.writes = {op.reads[0] + "_all"};
  sum.name = op.name + "_sum";
  sum.kernel = "sum_routes";
  sum.reads = gather.writes;
  sum.writes = gather.reads;
  b.add(std::move(gather));
  b.add(std::move(sum));
  b.add(std::move(op));
}

}  // namespace

int split_dimension(const std::vector<std::string>& shape) {
  for (size_t d = 0; d < shape.size(); ++d) {
    const std::vector<std::string> words = words_of(shape[d]);
    if (std::any_of(words.begin(), words.end(), is_split_symbol)) return static_cast<int>(d);
  }
  return -1;
}

std::string split_problem(const ParameterDecl& p) {
  if (p.split < 0) return "";
  const std::vector<std::string> whole = {p.shape[static_cast<size_t>(p.split)]};
  for (const std::string& part : p.parts.empty() ? whole : p.parts)
    if (!is_one_matrix(part))
      return fmt::format("weight '{}' holds several matrices in its size '{}': tensor parallelism needs their sizes as parts", p.name,
                         part);
  return "";
}

void add_split(Op op, ProgramBuilder& b, const AroundProduct& around) {
  if (op.reads.empty() || op.writes.empty()) return b.add(std::move(op));
  if (op.kernel == "linear" || op.kernel == "linear_add") return add_product(std::move(op), b, around);
  if (op.kernel == "embedding_forward") return add_partial(std::move(op), b, {});
  if (op.kernel == "cross_entropy") return add_loss(op, b);
  if (op.kernel == "router_z_loss") return add_z_loss(std::move(op), b);
  if (op.kernel == "balance_loss") return add_balance_loss(std::move(op), b);
  if (op.kernel == "qk_norm_wide") return b.fail("its norms of q and k go over all heads, which tensor parallelism splits");
  gather_latent(op, b);
  for (const std::string& r : op.reads) {
    if (!r.starts_with("p:") || is_norm_of_heads(op, b)) continue;
    if ((b.split(r) >= 0) != is_full(op.reads[0], b))
      return b.fail(fmt::format("op '{}' reads '{}' and '{}', of which tensor parallelism splits one", op.name, op.reads[0], r));
  }
  for (const std::string& w : op.writes)
    if (b.has(w + "_all")) b.fail(fmt::format("op '{}' changes '{}', which has been gathered", op.name, w));
  b.add(std::move(op));
}

}  // namespace distsetup
