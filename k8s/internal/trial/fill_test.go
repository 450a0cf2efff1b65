package trial

import (
	"testing"
	"time"
)

// Ten pods, one second each, the last of three: its tenth took three.
func TestAFillingTellsItsLastTenthApart(t *testing.T) {
	own := filler{began: time.Now(), say: func(string) {}, load: Load{Claims: 10}}
	for number := range 9 {
		own.at = append(own.at, float64(number+1))
	}
	own.at = append(own.at, 12)
	found := own.filling()
	if found.Placed != 10 || found.Seconds != 12 || found.LastSeconds != 3 || found.lastRate() != 1.0/3 {
		t.Errorf("%+v, %f in a second", found, found.lastRate())
	}
	if none := (&filler{}).filling(); none != (Filling{}) {
		t.Errorf("of nothing: %+v", none)
	}
}

func TestAFillingIsDoneOnceAllThatWereMadeHaveNodes(t *testing.T) {
	own := filler{made: make(chan struct{}), placed: map[string]bool{"a": true}, count: 2}
	if own.isDone() {
		t.Error("while pods are made")
	}
	close(own.made)
	if own.isDone() {
		t.Error("while one has no node")
	}
	own.placed["b"] = true
	if !own.isDone() {
		t.Error("though all have nodes")
	}
}
