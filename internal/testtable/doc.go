// Package testtable makes tables and compares rows for the tests of the packages
// that read and write them: tables from JSON rows through the real writer, golden
// tables out of their archives, rows in one canonical text form.
//
// Invariants:
//
//  1. Tables are built only by the public functions of package delta; nothing
//     here writes a log or a data file by another way.
//  2. Two rows have the same canonical text exactly when every value is equal;
//     floating point values compare by bits except that all NaN are one.
//  3. Golden archives are unpacked into the test's own directory, with the
//     modification times they were packed with.
//
// Entry points: [Batch], [Rows], [Lines], [Unpack].
//
// Only tests import the package; it may import any package below them.
package testtable
