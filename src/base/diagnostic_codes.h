// Every diagnostic code, once. A code is permanent: never reuse or renumber one.
//   DS00xx  reading files, syntax          DS01xx  keys, types, values       DS02xx  names (model, GPU, machine, target)
//   DS03xx  geometry and divisibility      DS04xx  batch, parallelism        DS05xx  memory, nothing fits
//   DS06xx  emitting, writing files        DS07xx  plan.json                 DS08xx  launching         DS09xx  the trainer
#pragma once

namespace distsetup::code {

inline constexpr char kUnreadableFile[] = "DS0001";
inline constexpr char kSyntax[] = "DS0002";
inline constexpr char kDuplicateKey[] = "DS0003";
inline constexpr char kUnwritableFile[] = "DS0004";
inline constexpr char kUnknownKey[] = "DS0101";
inline constexpr char kWrongType[] = "DS0102";
inline constexpr char kAmbiguousSpelling[] = "DS0103";  // no, on, 010, 1_000 where text or a number is meant
inline constexpr char kUnitMissing[] = "DS0104";
inline constexpr char kUnknownUnit[] = "DS0105";
inline constexpr char kOutOfRange[] = "DS0106";
inline constexpr char kUnknownValue[] = "DS0107";  // not one of the allowed values
inline constexpr char kMissingKey[] = "DS0108";
inline constexpr char kConflict[] = "DS0109";  // two settings that contradict each other
inline constexpr char kUnknownVersion[] = "DS0110";
inline constexpr char kUnknownFlag[] = "DS0111";
inline constexpr char kUnknownCommand[] = "DS0112";
inline constexpr char kMissingArgument[] = "DS0113";
inline constexpr char kUnknownModel[] = "DS0201";
inline constexpr char kUnknownGpu[] = "DS0202";
inline constexpr char kUnknownMachine[] = "DS0203";
inline constexpr char kUnknownTarget[] = "DS0204";
inline constexpr char kUnknownProgram[] = "DS0205";
inline constexpr char kUnsupportedArchitecture[] = "DS0206";
inline constexpr char kUnknownJob[] = "DS0207";  // no job of this name at the service
inline constexpr char kGeometryInvalid[] = "DS0301";
inline constexpr char kIndivisible[] = "DS0302";
inline constexpr char kLabelOff[] = "DS0303";  // a label more than 5 % from the true count
inline constexpr char kBatchIndivisible[] = "DS0401";
inline constexpr char kMeshInvalid[] = "DS0402";
inline constexpr char kUnsupportedFeature[] = "DS0403";  // the trainer cannot run this yet; named
inline constexpr char kNothingFits[] = "DS0501";
inline constexpr char kFileExists[] = "DS0601";
inline constexpr char kTemplate[] = "DS0602";
inline constexpr char kKeyNotRead[] = "DS0603";  // an emitted key that today's tools do not read
inline constexpr char kNoForm[] = "DS0604";      // a target cannot say this; as a note: what it makes of a setting
inline constexpr char kSecret[] = "DS0605";      // text that looks like a secret would be written into a file
inline constexpr char kPlanCorrupt[] = "DS0701";
inline constexpr char kPlanVersion[] = "DS0702";
inline constexpr char kPlanDigest[] = "DS0703";
inline constexpr char kLaunchRefused[] = "DS0801";
inline constexpr char kRankFailed[] = "DS0802";
inline constexpr char kEnvironment[] = "DS0803";
inline constexpr char kPreflight[] = "DS0804";  // launch --check: what the cluster or this machine cannot give the job
inline constexpr char kData[] = "DS0901";
inline constexpr char kCheckpoint[] = "DS0902";
inline constexpr char kCommunication[] = "DS0903";
inline constexpr char kWeights[] = "DS0904";  // published weights: missing, malformed, or of another model

}  // namespace distsetup::code
